"""One partition on this broker: its log joined to its leader core and to the requests that wait for it.

Owns appending as leader, the high watermark that readers see, waking waiters, and going offline when the disk fails.
Leaves the rule of the high watermark to `core.partition_leader`, bytes to the log, and who leads what to metadata
deltas (`partitions.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

import structlog
from odradek_log.log import AppendInfo, AppendOrigin, AppendRejected, CorruptLogError, Log

from odradek_broker.core.partition_leader import Effect, HighWatermarkAdvanced, PartitionLeader, ProposeIsr
from odradek_broker.deferred import Deferred
from odradek_broker.purgatory import Purgatory, Watchers
from odradek_wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek_wire.uuid import Uuid

log = structlog.get_logger(__name__)

AppendResult = AppendInfo | AppendRejected


class Partition:
    """A replica hosted here. `error` says at a glance whether a client may use it: NONE on the leader with a healthy
    log."""

    __slots__ = (
        "error",
        "high_watermark",
        "index",
        "leader",
        "leader_epoch",
        "log",
        "min_insync_replicas",
        "purgatory",
        "strict",
        "topic",
        "topic_id",
        "watchers",
    )

    def __init__(self, topic: str, topic_id: Uuid, index: int, partition_log: Log, purgatory: Purgatory) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = partition_log
        self.purgatory = purgatory
        self.watchers = Watchers()
        self.leader: PartitionLeader | None = None
        self.leader_epoch = -1
        self.high_watermark = partition_log.log_start_offset
        self.min_insync_replicas = 1
        self.strict = False
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Where read_committed stops: the high watermark as long as there are no transactions."""
        return self.high_watermark

    def become_leader(self, leader: PartitionLeader) -> None:
        """A new leader epoch in which this broker leads."""
        self.leader = leader
        self.leader_epoch = leader.leader_epoch
        self.high_watermark = leader.high_watermark
        if self.error != ErrorCode.KAFKA_STORAGE_ERROR:
            self.error = ErrorCode.NONE

    def resign(self, leader_epoch: int, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Another broker leads, or nobody, or the topic is gone: whoever waits here is answered with `error`."""
        self.leader = None
        self.leader_epoch = leader_epoch
        if self.error != ErrorCode.KAFKA_STORAGE_ERROR:
            self.error = error
        self.wake()

    def append(self, records: bytearray | memoryview, origin: AppendOrigin = AppendOrigin.CLIENT) -> AppendResult:
        """Append complete batches as leader. Offsets and the leader epoch are written into the given buffer.

        What the client did wrong, and a disk that fails, both come back as `AppendRejected`; a failing disk takes the
        partition offline first."""
        leader = self.leader
        if leader is None or self.error:
            return AppendRejected(self.error, None, [])
        partition_log = self.log
        try:
            result = partition_log.append(records, self.leader_epoch, origin=origin, strict=self.strict)
        except (OSError, CorruptLogError) as error:
            self.take_offline(error)
            return AppendRejected(ErrorCode.KAFKA_STORAGE_ERROR, None, [])
        if leader.alone:
            # Our log is the whole ISR: its end is the high watermark, without asking the core (profile of 1 KiB
            # produces).
            self.high_watermark = leader.high_watermark = leader.log_end_offset = partition_log.log_end_offset
            if self.watchers.operations:
                self.purgatory.changed(self.watchers)
        else:
            self.carry_out(leader.appended(partition_log.log_end_offset))
        return result

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what the leader core decided."""
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced():
                    self.high_watermark = effect.high_watermark
                    self.wake()
                case ProposeIsr():
                    # AlterPartition to the controller comes with followers (issue 4); one replica never proposes.
                    raise AssertionError("a broker with a single replica proposes no ISR")
                case _:
                    assert_never(effect)

    def wait_for_high_watermark(self, offset: int, timeout_ms: int) -> Deferred[ErrorCode]:
        """Done when everything before `offset` is in all in-sync replicas: NONE, or why that will not be known here."""
        epoch = self.leader_epoch

        def reached() -> ErrorCode | None:
            if self.error or self.leader_epoch != epoch:
                return self.error or ErrorCode.NOT_LEADER_OR_FOLLOWER
            return ErrorCode.NONE if self.high_watermark >= offset else None

        now = reached()
        if now is not None:
            deferred: Deferred[ErrorCode] = Deferred()
            deferred.complete(now)
            return deferred
        return self.purgatory.wait([self.watchers], reached, lambda: ErrorCode.REQUEST_TIMED_OUT, timeout_ms)

    def take_offline(self, error: BaseException) -> None:
        """The disk under this log fails: nothing is served from it any more, and everybody who waits is told."""
        if self.error != ErrorCode.KAFKA_STORAGE_ERROR:
            self.error = ErrorCode.KAFKA_STORAGE_ERROR
            log.error(
                "partition is offline: its log cannot be used",
                topic=self.topic,
                partition=self.index,
                directory=str(self.log.directory),
                error=str(error),
            )
            self.wake()

    def wake(self) -> None:
        """Something about this partition changed: whoever waits looks again."""
        if self.watchers.operations:
            self.purgatory.changed(self.watchers)
