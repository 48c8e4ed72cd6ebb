"""One partition of the group coordinator on a real log, for tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker.tests.groups import shards
from broker.tests.manual_clock import ManualClock

from odradek_broker.deferred import Deferred
from odradek_broker.groups.core.group_kinds import GROUP_KINDS, GroupKinds
from odradek_broker.groups.core.group_records import OffsetRecord
from odradek_broker.groups.core.group_step import GroupClient, GroupSettings
from odradek_broker.groups.group_partition import GroupPartition
from odradek_broker.purgatory import Purgatory
from odradek_broker.replication.core.partition_leader import PartitionLeader
from odradek_broker.replication.partition import Partition
from odradek_broker.timers import Timers
from odradek_controller.image import ClusterImage
from odradek_log.directory import LogDirectory
from odradek_log.log_config import LogConfig
from odradek_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek_wire.uuid import Uuid

TOPIC_ID = Uuid(b"\1" * 16)


TIMEOUT_MS = 5_000


class ManualScheduler:
    """A scheduler that runs callbacks when the test calls `run`; only the clock moves time."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> object:
        self.callbacks.append(callback)
        return None

    def call_later(self, delay: float, callback: Callable[[], object]) -> ManualScheduler:
        return self

    def cancel(self) -> None: ...

    def run(self) -> None:
        while self.callbacks:
            self.callbacks.pop(0)()


class RecordingLog:
    """A log that records the events at INFO and above."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []

    def bind(self, **facts: Any) -> RecordingLog:
        return self

    def debug(self, event: str, /, **facts: Any) -> None: ...

    def info(self, event: str, /, **facts: Any) -> None:
        self.seen.append((event, facts))

    warning = error = info


class CoordinatorAlone:
    """A group coordinator for one partition: a log directory, clocks and timers, no network."""

    def __init__(self, path: Path, replicas: tuple[int, ...] = (1,), kinds: GroupKinds = GROUP_KINDS) -> None:
        self.clock = ManualClock()
        self.soon = ManualScheduler()
        self.timers = Timers(self.clock, self.soon)
        self.directory = LogDirectory.open(path, wall_ms=self.clock.wall_ms, later=lambda delay_ms, callback: None)
        config = LogConfig.from_configs({"cleanup.policy": "compact"})
        self.directory.load(lambda topic: config)
        log = self.directory.logs.get(("__consumer_offsets", 0))
        if log is None:
            log = self.directory.create_log("__consumer_offsets", 0, TOPIC_ID, config)
        self.partition = Partition("__consumer_offsets", TOPIC_ID, 0, purgatory=Purgatory(self.timers), propose=_never)
        self.partition.serve(log, self.directory)
        end = log.log_end_offset
        self.partition.become_leader(
            PartitionLeader(
                1,
                leader_epoch=0,
                partition_epoch=0,
                replicas=replicas,
                isr=frozenset(replicas),
                log_end_offset=end,
                high_watermark=end,
                now_ms=0,
            )
        )
        self.log = RecordingLog()
        self._kinds = kinds
        self.coordinate()

    def coordinate(self) -> None:
        """Load a new coordinator from the log."""
        self.groups = GroupPartition(
            partition=self.partition,
            clock=self.clock,
            timers=self.timers,
            settings=GroupSettings(),
            image=ClusterImage(),
            log=self.log,
            kinds=self._kinds,
        )
        self.groups.load()

    def follower_fetched_everything(self) -> None:
        self.follower_fetched(self.partition.log_end_offset)

    def follower_fetched(self, end_offset: int) -> None:
        """Let the follower have all records before an offset, so that they are committed."""
        leader = self.partition.leader
        assert leader is not None
        self.partition.apply_effects(leader.follower_fetched(2, end_offset, 0, 0))
        self.soon.run()

    def join(self) -> Deferred[JoinGroupResponse]:
        response: Deferred[JoinGroupResponse] = Deferred()
        protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", b"")
        request = JoinGroupRequest("g", 10_000, 30_000, "", "i", "consumer", [protocol])
        group_client = GroupClient("c", "/h", 5, "1")
        self.groups.apply(shards.join(self.groups.shard, request, group_client, response, self.groups.now()))
        self.clock.advance_timeouts(0)
        return response

    def sync(self) -> Deferred[SyncGroupResponse]:
        response: Deferred[SyncGroupResponse] = Deferred()
        request = SyncGroupRequest("g", 1, "i-1", "i")
        request.assignments = [SyncGroupRequest.SyncGroupRequestAssignment("i-1", b"p0")]
        self.groups.apply(shards.sync(self.groups.shard, request, response, self.groups.now()))
        return response

    def stop(self) -> None:
        self.groups.resign()
        self.directory.close(0)


def offset(value: int) -> OffsetRecord:
    return OffsetRecord("g", "t", 0, OffsetCommitValue(value, -1, "", 100))


def committed(broker: CoordinatorAlone) -> int | None:
    found = broker.groups.shard.offsets.get("g", "t", 0)
    return None if found is None else found.offset


def _never(partition: Partition, isr: frozenset[int]) -> None:
    raise AssertionError("the ISR does not change here")
