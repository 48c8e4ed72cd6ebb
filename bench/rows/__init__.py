"""What is measured, in the order of the table: each module has `lines(session)`, which measures and yields lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

from bench.line import Line
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


def lines_of(row: str) -> Callable[[Session], Iterator[Line]]:
    """What measures a row; imported when it is its turn."""
    found: Callable[[Session], Iterator[Line]] = import_module(f"bench.rows.{row}").lines
    return found
