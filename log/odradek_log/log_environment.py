"""The parts that all logs of a directory share: disk, clock, open files, delayed deletion, log messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from odradek_log.disk import Disk
from odradek_log.loaded_indexes import LoadedIndexes
from odradek_log.open_files import OpenFiles
from odradek_log.reporting import Reporter, StandardReporter

Later = Callable[[int, Callable[[], None]], object]
"""`later(delay_ms, callback)` calls the callback once, after the delay, on a thread for disk work."""

PRODUCER_EXPIRATION_MS = 24 * 60 * 60 * 1000


def _no_jitter(_bound: int) -> int:
    return 0


@dataclass(slots=True, kw_only=True)
class LogEnvironment:
    """The shared parts; a `LogDirectory` creates one and passes it to its logs."""

    disk: Disk
    wall_ms: Callable[[], int]
    open_files: OpenFiles
    later: Later
    reporter: Reporter = field(default_factory=StandardReporter)
    loaded_indexes: LoadedIndexes = field(default_factory=LoadedIndexes)
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    """`producer.id.expiration.ms`"""
    random_below: Callable[[int], int] = _no_jitter
    """Returns a number in [0, bound), for `segment.jitter.ms`."""
