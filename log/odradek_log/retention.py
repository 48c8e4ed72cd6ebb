"""Which of a log's oldest segments may go (UnifiedLog.deleteOldSegments). Pure decisions over what the log tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from odradek_log.log_config import LogConfig


class SegmentRetention(NamedTuple):
    """`end_offset` is exclusive; `newest_ms` gives the largest timestamp, or the file's time where there is none. It is
    asked for only where it decides, since it may have to be read."""

    end_offset: int
    size: int
    newest_ms: Callable[[], int]


def deletable(
    segments: Sequence[SegmentRetention], config: LogConfig, log_start_offset: int, limit: int, now_ms: int
) -> int:
    """How many segments, from the oldest on, retention gives up; none that holds an offset at or above `limit`.

    Time and size count only under `cleanup.policy=delete`; what lies below the start offset goes under any policy.
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
