"""One partition of `__consumer_offsets` that this broker leads: the core of its groups joined to its log.

Owns carrying out what the core decides, and answering. Leaves every rule to `core.group_shard`, loading and writing to
`durable_partition`, waiting for the next deadline to `deadline_timer`, and which groups come here to `groups`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odradek_broker.clock import Clock
from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.coordination.deadline_timer import DeadlineTimer
from odradek_broker.coordination.durable_partition import Core, Done, DurablePartition, LoadState
from odradek_broker.deferred import Deferred
from odradek_broker.groups.core.group_loading import Loading
from odradek_broker.groups.core.group_records import CoordinatorRecord, encode_record
from odradek_broker.groups.core.group_shard import GroupShard
from odradek_broker.groups.core.group_step import GroupSettings, Happening, Step
from odradek_broker.logger import Logger
from odradek_broker.replication.partition import Partition
from odradek_broker.timers import Timers
from odradek_broker.transactions.core.transaction import Producer
from odradek_log.producer_state import TransactionMarker
from odradek_log.verification import Verification
from odradek_wire.errors import ErrorCode
from odradek_wire.records.attributes import Compression

BATCH_BYTES_MAX = 512 * 1024
"""Where many independent records are cut into batches."""


class GroupPartition:
    """Records take effect when all replicas in sync have them: with one replica, before `write` returns."""

    def __init__(
        self,
        partition: Partition,
        clock: Clock,
        timers: Timers,
        settings: GroupSettings,
        log: Logger,
        compression: Compression = Compression.NONE,
        commit_timeout_ms: int = 5_000,
    ) -> None:
        self.shard = GroupShard(settings)
        self._log = log.bind(topic=partition.topic, partition=partition.index)
        core = Core(encode_record, self.shard.replay, lambda: Loading(self.shard), self._loaded)
        self._durable = DurablePartition(partition, core, clock, timers, self._log, compression, commit_timeout_ms)
        self._deadline_timer = DeadlineTimer(clock, timers, self.shard.deadlines.next_ms, self._expire)
        partition.coordinator = self

    @property
    def partition(self) -> Partition:
        return self._durable.partition

    @property
    def state(self) -> LoadState:
        return self._durable.state

    @property
    def is_ready(self) -> bool:
        return self._durable.state is LoadState.READY

    def now(self) -> Instant:
        return self._durable.now()

    def load(self) -> None:
        """Replay the log up to its present end: a short one at once, a long one in turns."""
        self._durable.load()

    def _loaded(self) -> None:
        self.carry_out(self.shard.loaded(self.now()))

    def resign(self) -> None:
        """Another broker coordinates these groups now."""
        self._deadline_timer.cancel()
        if self.partition.coordinator is self:
            self.partition.coordinator = None
        self._durable.resign()
        for token, answer in self.shard.unload(self.now()).answers:
            _deferred(token).complete(answer)

    # -- steps ----------------------------------------------------------------------------------------------------

    def carry_out(self, step: Step) -> None:
        """Give the answers of a step, write its records, and tell the core the outcome when it waits for it."""
        for happening in step.happened:
            self._note(happening)
        for token, answer in step.answers:
            _deferred(token).complete(answer)
        if step.records:
            self.write(step.records, lambda error: self._step_written(step, error))
        self._arm()

    def _note(self, happening: Happening) -> None:
        facts: dict[str, object] = {"group": happening.group, "generation": happening.generation}
        member = happening.member
        if member is not None:
            facts |= {"member": member.member_id, "client_id": member.client_id, "address": member.client_host[1:]}
        (self._log.info if happening.notable else self._log.debug)(happening.event, **facts)

    def _step_written(self, step: Step, error: ErrorCode) -> None:
        if error:
            self._log.warning("group metadata was not written", error=error.name)
        if step.write is not None and self.is_ready:
            self.carry_out(self.shard.written(step.write, group_write_error(error), self.now()))

    def write(self, records: Sequence[CoordinatorRecord], done: Done) -> None:
        """Append records as one batch; `done` hears of it when they have taken effect, or why they do not."""
        self._durable.write(records, done)

    def write_in_transaction(
        self, records: Sequence[CoordinatorRecord], producer: Producer, verified: Verification | None, done: Done
    ) -> None:
        """Append records that are part of a producer's transaction, whose effect is that they are pending. `verified`
        as for `Partition.append`."""
        self._durable.write_in_transaction(records, producer, verified, done)

    def transaction_ended(self, marker: TransactionMarker) -> None:
        """A marker was appended: in its turn, what it commits or drops is pending no more."""
        self._durable.appended(lambda: self.shard.transaction_ended(marker.producer_id, commit=marker.commit))

    def write_independent(self, records: Sequence[CoordinatorRecord], done: Done) -> None:
        """Append records that need not stand or fall together, in as many batches as it takes."""
        size, start = 0, 0
        for index, record in enumerate(records):
            size += sum(len(part or b"") for part in encode_record(record)) + 32
            if size > BATCH_BYTES_MAX:
                self.write(records[start : index + 1], _ignore)
                size, start = 0, index + 1
        if records[start:]:
            self.write(records[start:], done)
        else:
            done(ErrorCode.NONE)

    def when_drained(self, callback: Done) -> None:
        """Call back once everything appended so far has taken effect, or NOT_COORDINATOR: nothing is known here."""
        self._durable.when_drained(callback)

    # -- time -----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self.is_ready:
            self._deadline_timer.arm()

    def _expire(self) -> None:
        for step in self.shard.expired(self.now()):
            self.carry_out(step)
        self._arm()


def group_write_error(error: ErrorCode) -> ErrorCode:
    """What a client is told when its group's metadata could not be written; it must be an error that it knows."""
    match error:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION | ErrorCode.NOT_ENOUGH_REPLICAS | ErrorCode.REQUEST_TIMED_OUT:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.NETWORK_EXCEPTION:  # a transaction's coordinator was not reached; this one is the right one
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error


def offset_write_error(error: ErrorCode) -> ErrorCode:
    """The same for committed offsets, where a commit that is too large has an error of its own."""
    if error in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE):
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return group_write_error(error)


def _deferred(token: object) -> Deferred[Any]:
    assert isinstance(token, Deferred)
    return token


def _ignore(_: ErrorCode) -> None:
    """A batch that failed is followed by another one, or by the next round of the same work."""
