"""Decide how many of the oldest segments retention deletes (UnifiedLog.deleteOldSegments). Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from odradek_log.log_config import LogConfig


class SegmentRetention(NamedTuple):
    """A segment. `end_offset` is exclusive; `newest_ms` returns the largest timestamp, or the modification time of the
    file without one. It may read the disk: call it only if needed."""

    end_offset: int
    size: int
    newest_ms: Callable[[], int]


def deletable(
    segments: Sequence[SegmentRetention], config: LogConfig, log_start_offset: int, limit: int, now_ms: int
) -> int:
    """Return how many of the oldest segments retention deletes; none with an offset at or above `limit`.

    Time and size apply only with `cleanup.policy=delete`; segments below the log start offset are deleted with any
    policy.
    """
    count = 0
    excess = sum(segment.size for segment in segments) - config.retention_bytes if config.retention_bytes >= 0 else -1
    for at, segment in enumerate(segments):
        last = at == len(segments) - 1
        if segment.end_offset > limit or (last and segment.size == 0):
            break
        too_big = config.delete and excess >= segment.size > 0
        unreachable = not last and segment.end_offset <= log_start_offset
        if not (too_big or unreachable or _too_old(segment, config, now_ms)):
            break
        excess -= segment.size
        count += 1
    return count


def _too_old(segment: SegmentRetention, config: LogConfig, now_ms: int) -> bool:
    return config.delete and config.retention_ms >= 0 and now_ms - segment.newest_ms() > config.retention_ms
