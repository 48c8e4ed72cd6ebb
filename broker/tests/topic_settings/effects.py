"""What one sees of each topic setting: an experiment, its result while the setting has its default, and with a value.

An experiment may be repeated on the same topic, so that the setting can be altered in between.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from broker.tests.fetches import fetch_request
from broker.tests.topic_settings.world import World

from odradek_wire.errors import ErrorCode
from odradek_wire.records.attributes import Compression, TimestampType
from odradek_wire.records.builder import BatchBuilder

_COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}


@dataclass(frozen=True)
class Effect:
    """`besides`: other settings of the topic; `static`: of the broker's file."""

    setting: str
    value: str
    experiment: Callable[[World], Awaitable[object]]
    without: object
    seen: object
    besides: Mapping[str, str] = field(default_factory=dict)
    static: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        release = self.static.get("odradek.emulate")
        return f"{self.setting} in {release}" if release else self.setting


async def versions_left_after_cleaning(world: World) -> int:
    key = await world.produce_versions_of_one_key(b"1", b"2", b"3")
    await world.clean()
    return world.count(key)


async def versions_left_of_more_data_each_time(world: World) -> int:
    """Of so much that most of the log is dirty."""
    big = b"x" * (1000 + 3 * world.log.size_bytes)
    key = await world.produce_versions_of_one_key(big, big, big)
    await world.clean()
    return world.count(key)


async def versions_left_after_cleaning_two_seconds_later(world: World) -> int:
    key = await world.produce_versions_of_one_key(b"1", b"2", b"3")
    world.clock.advance_wall(2000)
    await world.clean()
    return world.count(key)


async def tombstones_left_after_cleaning_two_seconds_later(world: World) -> int:
    key = await world.produce_versions_of_one_key(b"1", None)
    for _ in range(2):
        # What was written last stays.
        await world.produce_versions_of_one_key(b"another")
        await world.clean()
        world.clock.advance_wall(2000)
    return world.count(key)


async def codec(world: World) -> Compression:
    await world.produce(b"v" * 1000)
    header, _ = world.last_batch()
    assert header.compression is not None
    return header.compression


_RANDOM = random.Random(0)
_TEXT = b" ".join(_RANDOM.choices([b"%x" % _RANDOM.getrandbits(60) for _ in range(400)], k=4000))
_LEVELS = {Compression.GZIP: (-1, 1), Compression.LZ4: (9, 1), Compression.ZSTD: (3, 19)}


async def compression_level(world: World) -> int:
    """By the size that the same records have at the default level and at another one."""
    await world.produce(_TEXT)
    header, data = world.last_batch()
    assert header.compression is not None
    sizes = {}
    for level in _LEVELS[header.compression]:
        builder = BatchBuilder(compression=header.compression, compression_level=level)
        builder.append(world.clock.wall_ms(), b"k", _TEXT)
        sizes[len(builder.build())] = level
    assert len(sizes) == 2, "the levels cannot be told apart"
    return sizes[len(data)]


async def files_are_gone_after_a_second(world: World) -> bool:
    await world.produce()
    world.log.roll()
    world.log.advance_log_start_offset(world.log.log_end_offset)
    world.retain()
    files = list(Path(world.log.directory).glob("*.deleted"))
    assert files
    world.clock.advance_timeouts(1000)
    await world.disk_work_done()
    gone = not any(path.exists() for path in files)
    world.clock.advance_timeouts(60_000)
    await world.disk_work_done()
    return gone


async def is_flushed_after_a_record(world: World) -> bool:
    await world.produce()
    return world.log.recovery_point == world.log.log_end_offset


async def is_flushed_after_two_seconds(world: World) -> bool:
    await world.produce()
    world.clock.advance_wall(2000)
    world.clock.advance_timeouts(1000)
    await world.disk_work_done()
    return world.log.recovery_point == world.log.log_end_offset


async def index_entries_of_three_batches(world: World) -> int:
    world.log.roll()
    for _ in range(3):
        await world.produce()
    return len(world.log.segments.active.offset_index)


async def segments_of_ten_batches(world: World) -> int:
    """One of them was there before."""
    world.log.roll()
    before = len(world.log.segments)
    for _ in range(10):
        world.clock.advance_wall(1)
        await world.produce(b"v" * 500)
    return len(world.log.segments) - before + 1


async def segments_of_two_large_batches(world: World) -> int:
    world.log.roll()
    before = len(world.log.segments)
    for _ in range(2):
        await world.produce(b"v" * 600_000)
    return len(world.log.segments) - before + 1


async def segments_of_two_batches_two_seconds_apart(world: World) -> int:
    world.log.roll()
    before = len(world.log.segments)
    for _ in range(2):
        await world.produce()
        world.clock.advance_wall(2000)
    return len(world.log.segments) - before + 1


async def some_segments_end_a_second_early(world: World) -> bool:
    """Nine in ten, by chance: all of twenty would not once in 10^20."""
    ends = []
    for _ in range(20):
        world.log.roll()
        before = len(world.log.segments)
        await world.produce()
        await world.produce(later_ms=9000)
        ends.append(len(world.log.segments) > before)
    return any(ends)


async def error_of_2000_bytes(world: World) -> ErrorCode:
    return ErrorCode((await world.produce(b"v" * 2000)).error_code)


async def error_five_seconds_late(world: World) -> ErrorCode:
    return ErrorCode((await world.produce(later_ms=-5000)).error_code)


async def error_five_seconds_early(world: World) -> ErrorCode:
    return ErrorCode((await world.produce(later_ms=5000)).error_code)


async def error_a_day_early(world: World) -> ErrorCode:
    return ErrorCode((await world.produce(later_ms=24 * 3_600_000)).error_code)


async def error_of_an_old_consumer(world: World) -> ErrorCode:
    """Of one that knows no batches of format 2."""
    await world.produce()
    answer = await world.client.ask(fetch_request("t"), 3)
    return ErrorCode(answer.responses[0].partitions[0].error_code)


async def whose_time_counts(world: World) -> tuple[TimestampType, bool]:
    answer = await world.produce(later_ms=-5000)
    header, _ = world.last_batch()
    now_ms = world.clock.wall_ms()
    assert (answer.log_append_time_ms == now_ms) == (header.max_timestamp == now_ms)
    return header.timestamp_type, answer.log_append_time_ms == now_ms


async def room_is_kept_for_a_segment(world: World) -> bool:
    if sys.platform != "linux":
        pytest.skip("room can be kept on Linux only")
    world.log.roll()
    await world.produce()
    (newest,) = list(Path(world.log.directory).glob(f"{world.log.segments.active.base_offset:020d}.log"))
    found = os.stat(newest)
    assert found.st_size == world.log.segments.active.size
    return found.st_blocks * 512 >= 1 << 20


async def nothing_is_left_after_two_seconds(world: World) -> bool:
    await world.produce()
    world.clock.advance_wall(2000)
    world.retain()
    return world.is_empty


async def nothing_is_left_at_once(world: World) -> bool:
    await world.produce()
    world.retain()
    return world.is_empty


EFFECTS = [
    Effect("cleanup.policy", "compact", versions_left_after_cleaning, 3, 1, {"min.cleanable.dirty.ratio": "0"}),
    Effect("compression.gzip.level", "1", compression_level, -1, 1, {"compression.type": "gzip"}),
    Effect("compression.lz4.level", "1", compression_level, 9, 1, {"compression.type": "lz4"}),
    Effect("compression.type", "gzip", codec, Compression.NONE, Compression.GZIP),
    Effect("compression.zstd.level", "19", compression_level, 3, 19, {"compression.type": "zstd"}),
    Effect("delete.retention.ms", "1000", tombstones_left_after_cleaning_two_seconds_later, 1, 0, _COMPACTED),
    Effect("file.delete.delay.ms", "1000", files_are_gone_after_a_second, False, True),
    Effect("flush.messages", "1", is_flushed_after_a_record, False, True),
    Effect(
        "flush.ms",
        "1000",
        is_flushed_after_two_seconds,
        False,
        True,
        static={"log.flush.scheduler.interval.ms": "1000", "log.flush.interval.ms": "3600000"},
    ),
    Effect("index.interval.bytes", "0", index_entries_of_three_batches, 0, 2),
    Effect("internal.segment.bytes", "1000", segments_of_ten_batches, 1, 10),
    Effect(
        "max.compaction.lag.ms",
        "1000",
        versions_left_after_cleaning_two_seconds_later,
        3,
        1,
        {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"},
    ),
    Effect("max.message.bytes", "1000", error_of_2000_bytes, ErrorCode.NONE, ErrorCode.MESSAGE_TOO_LARGE),
    Effect(
        "message.timestamp.after.max.ms", "1000", error_five_seconds_early, ErrorCode.NONE, ErrorCode.INVALID_TIMESTAMP
    ),
    Effect(
        "message.timestamp.before.max.ms", "1000", error_five_seconds_late, ErrorCode.NONE, ErrorCode.INVALID_TIMESTAMP
    ),
    Effect(
        "message.timestamp.type",
        "LogAppendTime",
        whose_time_counts,
        (TimestampType.CREATE_TIME, False),
        (TimestampType.LOG_APPEND_TIME, True),
    ),
    Effect("min.cleanable.dirty.ratio", "1", versions_left_of_more_data_each_time, 1, 3, {"cleanup.policy": "compact"}),
    Effect("min.compaction.lag.ms", "60000", versions_left_after_cleaning, 1, 3, _COMPACTED),
    Effect("preallocate", "true", room_is_kept_for_a_segment, False, True, {"segment.bytes": "1048576"}),
    Effect("retention.bytes", "0", nothing_is_left_at_once, False, True),
    Effect("retention.ms", "1000", nothing_is_left_after_two_seconds, False, True),
    Effect("segment.bytes", "1048576", segments_of_two_large_batches, 1, 2),
    Effect("segment.index.bytes", "36", segments_of_ten_batches, 1, 4, {"index.interval.bytes": "0"}),
    Effect("segment.jitter.ms", "10000", some_segments_end_a_second_early, False, True, {"segment.ms": "10000"}),
    Effect("segment.ms", "1000", segments_of_two_batches_two_seconds_apart, 1, 2),
]

_AS_3_9 = {"odradek.emulate": "3.9"}
EFFECTS_IN_3_9 = [
    Effect(
        "message.downconversion.enable",
        "false",
        error_of_an_old_consumer,
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_VERSION,
        static=_AS_3_9,
    ),
    Effect(
        "message.timestamp.after.max.ms",
        "3600000",
        error_a_day_early,
        ErrorCode.NONE,
        ErrorCode.INVALID_TIMESTAMP,
        static=_AS_3_9,
    ),
    Effect(
        "message.timestamp.difference.max.ms",
        "1000",
        error_five_seconds_late,
        ErrorCode.NONE,
        ErrorCode.INVALID_TIMESTAMP,
        static=_AS_3_9,
    ),
]
"""What Kafka 3.9 has besides, or as another default."""
