"""The cleanable part of a log, whether the log is cleaned, and which segments are joined."""

from __future__ import annotations

import pytest

from odradek_log.cleaner.log_to_clean import CleanableSegment, LogToClean, choose_cleanable, group_segments
from odradek_log.log_config import LogConfig

# Four sealed segments of 100 bytes and ten offsets each, of 1, 2, 3 and 4 seconds; the active one begins at 40.
_SEGMENTS = [
    CleanableSegment(10 * at, 100, lambda at=at: 1000 * at + 1000, lambda at=at: 1000 * at + 900) for at in range(5)
]
_NOW = 10_000


def _plan(checkpoint: int | None = None, start: int = 0, stable: int = 50, **settings: object) -> LogToClean:
    config = LogConfig(cleanup_policy=("compact",), **settings)  # type: ignore[arg-type]
    return choose_cleanable(_SEGMENTS, config, checkpoint, start, 50, stable, _NOW)


@pytest.mark.parametrize(
    ("checkpoint", "start", "stable", "settings", "expected"),
    [
        # (first dirty, first uncleanable, clean bytes, cleanable bytes)
        (None, 0, 50, {}, (0, 40, 0, 400)),
        (None, 15, 50, {}, (15, 40, 200, 300)),
        (20, 0, 50, {}, (20, 40, 200, 200)),
        # The segment with the checkpoint counts as clean and as dirty.
        (25, 0, 50, {}, (25, 40, 300, 200)),
        (40, 0, 50, {}, (40, 40, 400, 0)),
        (45, 0, 50, {}, (45, 40, 500, 0)),
        # A checkpoint outside the log is ignored.
        (60, 0, 50, {}, (0, 40, 0, 400)),
        (10, 20, 50, {}, (20, 40, 200, 200)),
        # Whole segments below the last stable offset.
        (None, 0, 39, {}, (0, 30, 0, 300)),
        (None, 0, 30, {}, (0, 30, 0, 300)),
        (None, 0, 5, {}, (0, 0, 0, 0)),
        (20, 0, 5, {}, (20, 20, 200, 0)),
        # Segments whose largest timestamp is older than min.compaction.lag.ms.
        (None, 0, 50, {"min_compaction_lag_ms": 7000}, (0, 30, 0, 300)),
        (None, 0, 50, {"min_compaction_lag_ms": 7001}, (0, 20, 0, 200)),
        (None, 0, 50, {"min_compaction_lag_ms": 9001}, (0, 0, 0, 0)),
        (30, 0, 50, {"min_compaction_lag_ms": 9001}, (30, 30, 300, 0)),
    ],
)
def test_the_cleanable_part_of_a_log(
    checkpoint: int | None, start: int, stable: int, settings: dict[str, object], expected: tuple[int, int, int, int]
) -> None:
    assert _plan(checkpoint, start, stable, **settings)[:4] == expected


def test_a_log_is_cleanable_above_the_ratio_or_after_max_compaction_lag() -> None:
    def is_cleanable(checkpoint: int | None, **settings: object) -> bool:
        return _plan(checkpoint, **settings).is_cleanable(LogConfig(**settings))  # type: ignore[arg-type]

    assert _plan(20).cleanable_ratio == 0.5
    assert not is_cleanable(20)
    assert is_cleanable(20, min_cleanable_dirty_ratio=0.49)
    assert is_cleanable(None)
    assert is_cleanable(30, max_compaction_lag_ms=10_000 - 3901)
    assert not is_cleanable(30, max_compaction_lag_ms=10_000 - 3900)
    assert not is_cleanable(40, max_compaction_lag_ms=1, min_cleanable_dirty_ratio=0)
    # Records within min.compaction.lag.ms are not cleanable, even after max.compaction.lag.ms.
    assert not is_cleanable(30, max_compaction_lag_ms=1, min_compaction_lag_ms=9001)


def test_a_log_with_the_active_segment_alone_is_not_dirty() -> None:
    config = LogConfig(cleanup_policy=("compact",))
    assert choose_cleanable(_SEGMENTS[:1], config, None, 0, 10, 10, _NOW) == LogToClean(0, 0, 0, 0, False)


def test_timestamps_are_read_only_with_a_compaction_lag() -> None:
    def never() -> int:
        raise AssertionError

    segments = [facts._replace(first_timestamp=never, largest_timestamp=never) for facts in _SEGMENTS]
    assert (
        choose_cleanable(segments, LogConfig(cleanup_policy=("compact",)), None, 0, 50, 50, _NOW).cleanable_bytes == 400
    )


@pytest.mark.parametrize(
    ("segments", "end", "counts"),
    [
        ([(0, 40, 8), (10, 40, 8), (20, 40, 8)], 30, [2, 1]),
        ([(0, 100, 8), (10, 1, 8), (20, 99, 8)], 30, [1, 2]),
        ([(0, 500, 8), (10, 0, 0)], 20, [1, 1]),
        ([(0, 1, 8), (10, 1, 8), (20, 1, 8)], 30, [2, 1]),
        ([(0, 1, 0), ((1 << 31) - 5, 1, 0)], 1 << 31, [2]),
        ([(0, 1, 0), ((1 << 31) - 5, 1, 0)], (1 << 31) + 1, [1, 1]),
        # An empty segment is joined even if the next one is far away.
        ([(0, 1, 0), (10, 0, 0), (1 << 32, 1, 0)], (1 << 32) + 1, [2, 1]),
        ([], 0, []),
    ],
)
def test_neighbours_are_joined_within_the_limits_of_a_segment(
    segments: list[tuple[int, int, int]], end: int, counts: list[int]
) -> None:
    assert group_segments(segments, LogConfig(segment_bytes=100, segment_index_bytes=16), end) == counts
