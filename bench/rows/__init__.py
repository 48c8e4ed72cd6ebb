"""The rows of the table, in order: `measurements(session)` of each module runs the work and yields the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from bench.measurement import Measurement
from bench.session import Session

NAMES = (
    "bulk",
    "java_tools",
    "unbatched",
    "start",
    "memory",
    "topics",
    "connections",
    "cluster",
    "idempotent",
    "transactions",
    "large_log",
    "large_start",
    "cleaner",
    "codec",
    "record_data",
)


def measurements_of(row: str) -> Callable[[Session], Iterator[Measurement]]:
    """Return the function that measures a row, and import its module."""
    found: Callable[[Session], Iterator[Measurement]] = import_module(f"bench.rows.{row}").measurements
    return found
