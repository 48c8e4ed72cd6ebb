"""`.txnindex`: the aborted transactions that ended in a segment (TransactionIndex, AbortedTxn version 0).

Owns the entries and their bytes. The file is there only if a transaction was aborted.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from odradek_log.errors import CorruptLogError

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """From its first record to its marker. `last_stable_offset` is what it was once the marker stood in the log."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        return _ENTRY.pack(_VERSION, *self)


def decode(data: bytes, path: str) -> list[AbortedTransaction]:
    """The file's entries; a torn one at the end is left out."""
    entries = []
    for version, *fields in _ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]):
        if version != _VERSION:
            raise CorruptLogError(f"{path}: unknown version {version} of an aborted transaction")
        entries.append(AbortedTransaction(*fields))
    return entries
