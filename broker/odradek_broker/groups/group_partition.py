"""One partition of `__consumer_offsets` that this broker leads: the groups and offsets in it, and its log.

Owns the writes that only groups have: in a producer's transaction, and in several batches. Leaves the rules to
`core.group_shard`, steps and deadlines to `coordinator_partition`, choosing the partition to `group_coordinator`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek_broker.clock import Clock
from odradek_broker.coordination.coordinator_partition import CoordinatorPartition, CoordinatorShard
from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.coordination.durable_partition import CoordinatorPlayback, CoordinatorState, WriteCallback
from odradek_broker.deferred import Deferred
from odradek_broker.groups.core.group_kind import Request, RequestHandler, Response
from odradek_broker.groups.core.group_kinds import GROUP_KINDS, GroupKinds
from odradek_broker.groups.core.group_loader import GroupLoader
from odradek_broker.groups.core.group_records import CoordinatorRecord
from odradek_broker.groups.core.group_shard import GroupShard
from odradek_broker.groups.core.group_step import GroupClient, GroupSettings, GroupStep
from odradek_broker.groups.core.write_errors import group_write_error
from odradek_broker.logger import Logger
from odradek_broker.replication.partition import Partition
from odradek_broker.timers import Timers
from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_controller.image import ClusterImage
from odradek_log.producer_state_manager import TransactionMarker
from odradek_log.verification_guard import VerificationGuard
from odradek_wire.errors import ErrorCode
from odradek_wire.records.attributes import Compression

BATCH_BYTES_MAX = 512 * 1024
"""The size at which `write_in_batches` appends a batch and begins the next one."""


class GroupPartition:
    """Records take effect when they are committed: with one replica, before `write` returns."""

    def __init__(
        self,
        *,
        partition: Partition,
        clock: Clock,
        timers: Timers,
        settings: GroupSettings,
        image: ClusterImage,
        log: Logger,
        compression: Compression = Compression.NONE,
        write_timeout_ms: int = 5_000,
        kinds: GroupKinds = GROUP_KINDS,
    ) -> None:
        self.shard = GroupShard(settings, image, kinds)
        self._log = log.bind(topic=partition.topic, partition=partition.index)
        self._coordinator = CoordinatorPartition(
            partition=partition,
            playback=CoordinatorPlayback(
                encode=lambda record: record.encode(), replay=self.shard.replay, loader=lambda: GroupLoader(self.shard)
            ),
            shard=CoordinatorShard(
                loaded=self.shard.loaded,
                written=self._written,
                next_deadline_ms=self.shard.deadlines.next_ms,
                handle_deadlines=self._handle_deadlines,
                unloaded=self.shard.unload,
            ),
            clock=clock,
            timers=timers,
            log=log,
            compression=compression,
            write_timeout_ms=write_timeout_ms,
        )
        self._durable = self._coordinator.durable
        partition.marker_listener = self

    @property
    def partition(self) -> Partition:
        return self._durable.partition

    @property
    def state(self) -> CoordinatorState:
        return self._coordinator.state

    @property
    def is_active(self) -> bool:
        return self._coordinator.is_active

    @property
    def is_ready(self) -> bool:
        """Whether transaction markers may be appended to the partition (for `Partition.marker_listener`)."""
        return self._coordinator.is_active

    def now(self) -> Instant:
        return self._coordinator.now()

    def load(self) -> None:
        """Replay the log up to its present end: immediately if it is short, else in slices."""
        self._coordinator.load()

    def resign(self) -> None:
        """Complete pending requests with NOT_COORDINATOR: another broker coordinates these groups now."""
        if self.partition.marker_listener is self:
            self.partition.marker_listener = None
        self._coordinator.resign()

    # -- steps ----------------------------------------------------------------------------------------------------

    def handle(
        self,
        handler: RequestHandler[Request, Response],
        request: Request,
        client: GroupClient,
        deferred: Deferred[Response],
    ) -> None:
        """Serve a request of a group's member: complete its deferred response now or later."""

        def serve(error: ErrorCode) -> None:
            if error:
                deferred.complete(handler.error_response(request, group_write_error(error)))
            elif not deferred.done:  # done: the client has disconnected while the request waited
                self.apply(self.shard.handle(handler, request, client, deferred, self.now()))

        if self.shard.handler_of(request, handler).waits_for_writes:
            self.when_writes_committed(serve)
        else:
            serve(ErrorCode.NONE)

    def _handle_deadlines(self, now: Instant) -> Iterable[GroupStep]:
        return self.shard.handle_deadlines(now, lambda: self._durable.has_pending_writes)

    def apply(self, step: GroupStep) -> None:
        """Log the events, send the responses, and append the records of a step."""
        self._coordinator.apply(step)

    def _written(self, step: GroupStep, error: ErrorCode) -> None:
        if error and not step.responses_once_written:
            self._log.warning("group metadata was not written", error=error.name)
        if step.write is not None and self.is_active:
            self.apply(self.shard.written(step.write, group_write_error(error), self.now()))

    # -- writing --------------------------------------------------------------------------------------------------

    def write(self, records: Sequence[CoordinatorRecord], done: WriteCallback) -> None:
        """Append records as one batch; call `done` when they have taken effect, or with the error."""
        self._durable.write(records, done)

    def write_in_transaction(
        self,
        records: Sequence[CoordinatorRecord],
        producer: Producer,
        guard: VerificationGuard | None,
        done: WriteCallback,
    ) -> None:
        """Append offsets as part of a producer's transaction: they are pending until it ends. `guard` is the one for
        `Partition.append`."""
        self._durable.write_in_transaction(records, producer.id, producer.epoch, guard, done)

    def transaction_ended(self, marker: TransactionMarker) -> None:
        """Commit or drop the producer's pending offsets when this marker, which was just appended, is committed."""
        self._durable.when_committed(lambda: self.shard.transaction_ended(marker.producer_id, commit=marker.commit))

    def write_in_batches(self, records: Sequence[CoordinatorRecord], done: WriteCallback) -> None:
        """Append records in as many batches as they need, until the log refuses one. When all batches have an outcome,
        call `done` with the first error: batches without an error have taken effect."""
        batches = _batches(records)
        outcomes: list[ErrorCode] = []

        def written(error: ErrorCode) -> None:
            outcomes.append(error)
            if len(outcomes) == len(batches):
                done(_first_error(outcomes))

        for batch in batches:
            error = _first_error(outcomes)
            if error:
                written(error)
            else:
                self.write(batch, written)
        if not batches:
            done(ErrorCode.NONE)

    def when_earlier_writes_committed(self, callback: WriteCallback) -> None:
        """Call back when the writes that are pending now are committed, or with an error (see `DurablePartition`)."""
        self._durable.when_earlier_writes_committed(callback)

    def when_writes_committed(self, callback: WriteCallback) -> None:
        """Call back when no write is pending, or with an error (see `DurablePartition.when_writes_committed`)."""
        self._durable.when_writes_committed(callback)


def _batches(records: Sequence[CoordinatorRecord]) -> list[Sequence[CoordinatorRecord]]:
    batches = []
    size, start = 0, 0
    for index, record in enumerate(records):
        size += sum(len(part or b"") for part in record.encode()) + 32
        if size > BATCH_BYTES_MAX:
            batches.append(records[start : index + 1])
            size, start = 0, index + 1
    if records[start:]:
        batches.append(records[start:])
    return batches


def _first_error(outcomes: Sequence[ErrorCode]) -> ErrorCode:
    return next((error for error in outcomes if error), ErrorCode.NONE)
