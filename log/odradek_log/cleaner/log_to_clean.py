"""Decide how much of a log can be cleaned, whether that is worth it, and which segments become one (LogCleanerManager,
Cleaner.groupSegmentsBySize). Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from odradek_log.log_config import LogConfig

_MAX_OFFSET_RANGE = 0x7FFF_FFFF
_NEVER_MS = 1 << 62


class CleanableSegment(NamedTuple):
    """A segment. The functions return the largest timestamp and that of the first batch, or 0 or less without one. They
    may read the disk: call them only if needed."""

    base_offset: int
    size: int
    largest_timestamp: Callable[[], int]
    first_timestamp: Callable[[], int]


class LogToClean(NamedTuple):
    """The part of a log that can be cleaned (LogToClean)."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of a segment."""
    clean_bytes: int
    cleanable_bytes: int
    need_compaction_now: bool
    """Whether a record has been dirty for longer than `max.compaction.lag.ms`."""

    @property
    def cleanable_ratio(self) -> float:
        """Kafka's dirty ratio."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_cleanable(self, config: LogConfig) -> bool:
        return (
            self.need_compaction_now and self.cleanable_bytes > 0
        ) or self.cleanable_ratio > config.min_cleanable_dirty_ratio


def choose_cleanable(
    segments: Sequence[CleanableSegment],
    config: LogConfig,
    checkpoint: int | None,
    log_start_offset: int,
    log_end_offset: int,
    last_stable_offset: int,
    now_ms: int,
) -> LogToClean:
    """Return what can be cleaned. `segments` are all segments of the log, the last one active. With a checkpoint
    outside the log, everything is dirty."""
    if checkpoint is None or not log_start_offset <= checkpoint <= log_end_offset:
        checkpoint = log_start_offset
    active = segments[-1]
    uncleanable = min(last_stable_offset, active.base_offset)
    dirty = _sealed_from(segments, checkpoint)
    if config.min_compaction_lag_ms > 0:
        limit = now_ms - config.min_compaction_lag_ms
        recent = next((each.base_offset for each in dirty if each.largest_timestamp() > limit), uncleanable)
        uncleanable = min(uncleanable, recent)
    uncleanable = max(checkpoint, uncleanable)
    # Only whole segments, without the one in which the uncleanable part begins.
    end = next((each.base_offset for each in _sealed_from(segments, uncleanable)), active.base_offset)
    clean = sum(each.size for each in segments if each.base_offset < checkpoint)
    begin = min(checkpoint, end)
    cleanable = sum(each.size for each in _sealed_from(segments, begin) if begin < end and each.base_offset < end)
    return LogToClean(checkpoint, end, clean, cleanable, _needs_compaction_now(dirty, config, now_ms))


def group_segments(segments: Sequence[tuple[int, int, int]], config: LogConfig, end: int) -> list[int]:
    """Return how many neighbouring segments become one, for each new segment. Each segment is (base offset, size, size
    of its larger index); `end` is the end of the last one."""
    counts: list[int] = []
    at = 0
    while at < len(segments):
        base, size, index_size = segments[at]
        count = 1
        for next_at in range(at + 1, len(segments)):
            _, more, more_index = segments[next_at]
            next_end = segments[next_at + 1][0] if next_at + 1 < len(segments) else end
            too_wide = more > 0 and next_end - 1 - base > _MAX_OFFSET_RANGE
            if size + more > config.segment_bytes or index_size + more_index > config.segment_index_bytes or too_wide:
                break
            size += more
            index_size += more_index
            count += 1
        counts.append(count)
        at += count
    return counts


def _sealed_from(segments: Sequence[CleanableSegment], offset: int) -> Sequence[CleanableSegment]:
    """Return the segments from the one with `offset` on, without the active one."""
    if offset > segments[-1].base_offset:
        return ()
    first = max((at for at, each in enumerate(segments) if each.base_offset <= offset), default=0)
    return segments[first:-1]


def _needs_compaction_now(dirty: Sequence[CleanableSegment], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms >= _NEVER_MS:
        return False
    limit = now_ms - max(config.max_compaction_lag_ms, 0)
    return any(0 < each.first_timestamp() < limit for each in dirty)
