"""How much of a log is cleanable, whether it is worth it, and which segments become one."""

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
        # A pass that ended inside a segment leaves that one dirty and clean.
        (25, 0, 50, {}, (25, 40, 300, 200)),
        (40, 0, 50, {}, (40, 40, 400, 0)),
        (45, 0, 50, {}, (45, 40, 500, 0)),
        # Outside the log it means nothing.
        (60, 0, 50, {}, (0, 40, 0, 400)),
        (10, 20, 50, {}, (20, 40, 200, 200)),
        # Nothing beyond the last stable offset, in whole segments.
        (None, 0, 39, {}, (0, 30, 0, 300)),
        (None, 0, 30, {}, (0, 30, 0, 300)),
        (None, 0, 5, {}, (0, 0, 0, 0)),
        (20, 0, 5, {}, (20, 20, 200, 0)),
        # Nothing that is younger than min.compaction.lag.ms, by the largest timestamp.
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
    def worth(checkpoint: int | None, **settings: object) -> bool:
        return _plan(checkpoint, **settings).is_cleanable(LogConfig(**settings))  # type: ignore[arg-type]

    assert _plan(20).cleanable_ratio == 0.5
    assert not worth(20)
    assert worth(20, min_cleanable_dirty_ratio=0.49)
    assert worth(None)
    assert worth(30, max_compaction_lag_ms=10_000 - 3901)
    assert not worth(30, max_compaction_lag_ms=10_000 - 3900)
    assert not worth(40, max_compaction_lag_ms=1, min_cleanable_dirty_ratio=0)
    # What is within the least lag is not cleanable, however overdue.
    assert not worth(30, max_compaction_lag_ms=1, min_compaction_lag_ms=9001)


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
        # An empty one is taken along, however far away the next one is.
        ([(0, 1, 0), (10, 0, 0), (1 << 32, 1, 0)], (1 << 32) + 1, [2, 1]),
        ([], 0, []),
    ],
)
def test_neighbours_are_joined_within_the_limits_of_a_segment(
    segments: list[tuple[int, int, int]], end: int, counts: list[int]
) -> None:
    assert group_segments(segments, LogConfig(segment_bytes=100, segment_index_bytes=16), end) == counts
