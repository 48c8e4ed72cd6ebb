"""One record, as all formats of record data have it."""

from __future__ import annotations

from typing import NamedTuple

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """A record with its absolute offset and its timestamp in ms (-1: none).

    Header keys are text, in which surrogate escapes keep bytes that are not UTF-8. Formats before magic 2 have no
    headers.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()
