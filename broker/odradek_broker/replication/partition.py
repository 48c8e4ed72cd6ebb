"""A partition on this broker: joins the log, the leader core and the requests that wait for the partition.

Owns appending as leader, the high watermark that readers see, trying delayed operations after a change, and going
offline when the disk fails. Leaves the rule of the high watermark to `core.partition_leader`, bytes to the log, and the
choice of leaders to metadata deltas (`replica_manager.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeAlias, assert_never

from odradek_broker.deferred import Deferred
from odradek_broker.metadata.view import INTERNAL_TOPICS
from odradek_broker.purgatory import Purgatory, Watchers
from odradek_broker.replication.core.partition_leader import Effect, HighWatermarkAdvanced, PartitionLeader, ProposeIsr
from odradek_log.append import AppendInfo, Rejection
from odradek_log.directory import LogDirectory
from odradek_log.log import Log
from odradek_log.log_errors import CorruptLogError, LogOfflineError
from odradek_log.producer_state_manager import AppendOrigin, TransactionMarker
from odradek_log.verification_guard import VerificationGuard
from odradek_wire.errors import ErrorCode

if TYPE_CHECKING:
    from odradek_broker.replication.log_syncer import LogSyncer
    from odradek_wire.uuid import Uuid

AppendResult: TypeAlias = AppendInfo | Rejection
Propose: TypeAlias = Callable[["Partition", frozenset[int]], None]
_CLIENT = AppendOrigin.CLIENT
STORAGE_ERRORS = (OSError, CorruptLogError, LogOfflineError)


class PartitionFetcher(Protocol):
    """Fetches a partition from its leader."""

    def log_changed(self, partition: Partition) -> None:
        """Send the partition's offsets to the leader in the next Fetch."""


class MarkerListener(Protocol):
    """A coordinator with transactional state in the partition, which is called when a transaction ends there."""

    @property
    def is_ready(self) -> bool:
        """Whether the coordinator has loaded the partition's records."""

    def transaction_ended(self, marker: TransactionMarker) -> None:
        """Handle a marker that was appended. It takes effect when the high watermark has passed it."""


class Partition:
    """A replica on this broker. `error` is NONE on the leader with a healthy log, else the error that clients get."""

    __slots__ = (
        "_first_new_offset",
        "_propose",
        "_went_offline",
        "bytes_in",
        "bytes_out",
        "directory",
        "error",
        "fetcher",
        "future",
        "high_watermark",
        "index",
        "is_following",
        "leader",
        "leader_epoch",
        "log",
        "log_syncer",
        "marker_listener",
        "min_insync_replicas",
        "needs_full_checks",
        "purgatory",
        "replica_watchers",
        "served_log",
        "strict_validation",
        "topic",
        "topic_id",
        "watchers",
    )

    log: Log
    """Unset if the log could not be opened: check `error` first, or use `served_log`."""

    def __init__(
        self,
        topic: str,
        topic_id: Uuid,
        index: int,
        *,
        purgatory: Purgatory,
        propose: Propose,
        went_offline: Callable[[Partition], None] | None = None,
        log_syncer: LogSyncer | None = None,
    ) -> None:
        """`propose` sends a proposed ISR to the controller; `went_offline` is called when the disk under the log fails;
        `log_syncer` is given if acknowledgements wait for the disk."""
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.purgatory = purgatory
        self.served_log: Log | None = None
        self.directory: LogDirectory | None = None
        self._propose = propose
        self._went_offline = went_offline
        self.log_syncer = log_syncer
        self.watchers = Watchers()
        """Operations that wait for the high watermark: Fetches of consumers, Produces, coordinators."""
        self.replica_watchers = Watchers()
        """Operations that wait for the log end offset: Fetches of followers."""
        self.leader: PartitionLeader | None = None
        self.leader_epoch = -1
        self.bytes_in = 0
        self.bytes_out = 0
        self._first_new_offset = 0
        self.high_watermark = 0
        self.min_insync_replicas = 1
        self.needs_full_checks = topic in INTERNAL_TOPICS or log_syncer is not None
        """Whether Produce must not take its short checks: an internal topic, an ISR below `min.insync.replicas`, or
        responses that wait for the disk."""
        self.strict_validation = False
        self.is_following = False
        """Whether this replica follows a leader."""
        self.marker_listener: MarkerListener | None = None
        """The group coordinator of a partition of `__consumer_offsets`."""
        self.fetcher: PartitionFetcher | None = None
        self.future: Log | None = None
        """The future log, in another log directory: it replaces `log` when it has caught up."""
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def serve(self, log: Log, directory: LogDirectory, high_watermark: int = 0) -> None:
        """Serve this log; `high_watermark` is the checkpointed one."""
        self.log = self.served_log = log
        self.directory = directory
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self._first_new_offset = log.log_end_offset

    def replace_log(self, log: Log, directory: LogDirectory) -> None:
        """Serve the future log, which has caught up, from now on."""
        assert log.log_end_offset == self.log.log_end_offset
        self.log = self.served_log = log
        self.directory = directory
        self.future = None
        if self.log_syncer is not None:
            self.log_syncer.begin(self)

    @property
    def messages_in(self) -> int:
        """Records appended since this broker started."""
        return 0 if self.served_log is None else self.served_log.log_end_offset - self._first_new_offset

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """The end of the records that read_committed reads: the first offset of the oldest transaction whose marker is
        not below the high watermark, else the high watermark. It advances with the high watermark or the log start
        offset."""
        if not self.log.producers.transactions.has_any:
            return self.high_watermark  # without a further call: every Fetch reads it
        unstable = self.log.first_unstable_offset(self.high_watermark)
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def waits_for_disk(self) -> bool:
        """Whether a record must be on the disk before it is acknowledged, and is not."""
        return self.log_syncer is not None and self.log.recovery_point < self.log.log_end_offset

    @property
    def is_behind_epoch_start(self) -> bool:
        """Whether the high watermark is below the log end offset at this leader's election (KIP-207)."""
        return self.leader is not None and self.high_watermark < self.leader.leader_epoch_start_offset

    def check_leader_epoch(self, requested: int) -> ErrorCode:
        """Return the error for a client whose request has the leader epoch `requested`, -1 for none. An error of the
        epoch comes before any other except KAFKA_STORAGE_ERROR, also on a follower."""
        if requested in (-1, self.leader_epoch) or self.error == ErrorCode.KAFKA_STORAGE_ERROR:
            return self.error
        return ErrorCode.FENCED_LEADER_EPOCH if requested < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def set_min_insync_replicas(self, count: int) -> None:
        self.min_insync_replicas = count
        if self.leader is not None:
            self.apply_effects(self.leader.set_min_isr(count))
        self._update_checks()

    def _update_checks(self) -> None:
        under_min_isr = self.leader is not None and self.leader.under_min_isr
        self.needs_full_checks = self.topic in INTERNAL_TOPICS or under_min_isr or self.log_syncer is not None

    def become_leader(self, leader: PartitionLeader) -> None:
        """Lead the partition in the leader epoch of `leader`."""
        self.is_following = False
        self.leader = leader
        self.leader_epoch = leader.leader_epoch
        self.high_watermark = leader.high_watermark
        self._update_checks()
        if self.error != ErrorCode.KAFKA_STORAGE_ERROR:
            self.error = ErrorCode.NONE
        self.try_complete_delayed()

    def resign(self, leader_epoch: int, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Stop leading and following, because another broker leads, or none, or the topic is deleted. Requests that
        wait for the partition get `error`."""
        self.leader = None
        self.is_following = False
        self.leader_epoch = leader_epoch
        if self.error != ErrorCode.KAFKA_STORAGE_ERROR:
            self.error = error
        self.try_complete_delayed()

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, adds_partition: bool
    ) -> VerificationGuard | ErrorCode:
        """Return the guard for `append` of a transactional batch, to be used when the transaction coordinator has
        confirmed that this partition is part of the transaction, or, with `adds_partition`, has added it. Return
        ONGOING if the coordinator need not be asked, or the error for a batch that is rejected anyway."""
        if self.leader is None or self.error:
            return self.error
        log = self.log
        found = log.producers.begin_verification(
            producer_id, producer_epoch, sequence, adds_partition=adds_partition, now_ms=log.env.wall_ms()
        )
        return found.error if isinstance(found, Rejection) else found

    def append(
        self,
        records: bytearray | memoryview,
        origin: AppendOrigin = _CLIENT,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Append complete batches as leader. Writes offsets and the leader epoch into the given buffer. Rejects a batch
        that begins a transaction unless `guard` is the result of `begin_verification`, or NOT_REQUIRED.

        Returns a `Rejection` for an error of the client and for a failing disk, which takes the partition offline."""
        leader = self.leader
        if leader is None or self.error:
            return Rejection(self.error, "this broker does not lead the partition")
        partition_log = self.log
        try:
            if origin is _CLIENT:
                result = partition_log.append(records, self.leader_epoch, strict=self.strict_validation, guard=guard)
            else:
                result = partition_log.append(records, self.leader_epoch, origin=origin, guard=guard)
        except STORAGE_ERRORS as error:
            self.take_offline()
            return Rejection(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        self.bytes_in += len(records)
        if leader.is_sole_replica and self.log_syncer is None:
            # This log is the whole ISR: its end is the high watermark. A call of the core costs too much here (profile
            # of 1 KiB produces); `partition_leader` lists every such place.
            self.high_watermark = leader.high_watermark = leader.log_end_offset = partition_log.log_end_offset
            if self.watchers.operations:
                self.purgatory.check_and_complete(self.watchers)
        else:
            if self.replica_watchers.operations:
                self.purgatory.check_and_complete(self.replica_watchers)
            if self.log_syncer is None:
                self.apply_effects(leader.record_log_end_offset(partition_log.log_end_offset))
            else:
                self.log_syncer.begin(self)
        return result

    def on_synced(self) -> None:
        """Pass the recovery point to the leader core, because more of the log is on the disk."""
        if self.leader is not None and not self.error:
            self.apply_effects(
                self.leader.record_log_end_offset(max(self.log.recovery_point, self.leader.log_end_offset))
            )
            self.try_complete_delayed()  # acks=1 waits for this sync alone

    def end_transaction(self, marker: TransactionMarker) -> AppendResult:
        """Append the marker that ends a producer's transaction in this partition."""
        # Imported here because most brokers never append one.
        from odradek_wire.records.control import end_txn_marker_batch

        leader = self.leader
        if leader is None or self.error:
            return Rejection(self.error, "this broker does not lead the partition")
        if leader.under_min_isr:
            return Rejection(ErrorCode.NOT_ENOUGH_REPLICAS, "the ISR is below min.insync.replicas")
        listener = self.marker_listener
        if listener is not None and not listener.is_ready:
            # Transaction coordinators retry after this error; no error code says that a partition is loading.
            return Rejection(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition is not loaded yet")
        rejection = self.log.producers.check_marker(marker)
        if rejection is not None:
            return rejection
        # Forget the transactions whose markers are replicated, even if no consumer ever reads the partition.
        self.log.producers.transactions.on_high_watermark_updated(self.high_watermark)
        batch = end_txn_marker_batch(
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=self.log.env.wall_ms(),
        )
        result = self.append(batch, AppendOrigin.COORDINATOR)
        if listener is not None and not isinstance(result, Rejection):
            listener.transaction_ended(marker)
        return result

    # -- as a follower ------------------------------------------------------------------------------------------------

    def follow(self, leader_epoch: int) -> None:
        """Follow the leader of this epoch."""
        self.resign(leader_epoch)
        self.is_following = self.error != ErrorCode.KAFKA_STORAGE_ERROR

    def append_as_follower(self, records: memoryview, leader_high_watermark: int, leader_start: int) -> None:
        """Append batches from the leader's Fetch response, with its high watermark and log start offset.

        Raises CorruptRecordError, or one of STORAGE_ERRORS."""
        log = self.log
        if records:
            log.append_as_follower(records, leader_epoch=self.leader_epoch)
            self.bytes_in += len(records)
        reached = min(leader_high_watermark, log.log_end_offset)
        start_advanced = leader_start > log.log_start_offset
        if start_advanced:
            log.advance_log_start_offset(min(leader_start, log.log_end_offset))
        if reached > self.high_watermark:
            self.high_watermark = reached
            log.producers.transactions.on_high_watermark_updated(reached)
            self.try_complete_delayed()
        elif start_advanced:
            self.try_complete_delayed()

    def truncate_to(self, offset: int) -> bool:
        """Truncate the log. Return whether a checkpoint of the directory (recovery point, cleaner) is above the new
        end: then the checkpoint must be written before the next append. Raises one of STORAGE_ERRORS."""
        checkpointed = max(self.log.recovery_point, self.log.cleaner.checkpoint or 0)
        self.log.truncate_to(offset)
        if self.future is not None:
            with suppress(*STORAGE_ERRORS):  # the log reports it, and the move finds the future log failed
                self.future.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        return self.log.log_end_offset < checkpointed

    def truncate_fully_and_start_at(self, offset: int) -> bool:
        """Delete all records, because the leader's log begins above the end of this one. Returns and raises as
        `truncate_to`."""
        checkpointed = max(self.log.recovery_point, self.log.cleaner.checkpoint or 0)
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset
        return checkpointed > 0

    def log_start_offset_advanced(self) -> None:
        """Try waiting requests again, and send the new log start offset in the next Fetch if this replica follows."""
        if self.fetcher is not None:
            self.fetcher.log_changed(self)
        self.try_complete_delayed()

    # -- the in-sync replicas -----------------------------------------------------------------------------------------

    def follower_fetched(
        self, follower: int, fetch_offset: int, log_start: int, now_ms: int, broker_epoch: int, may_join: bool
    ) -> None:
        """Record a follower's Fetch in the leader core."""
        assert self.leader is not None
        progress = self.leader.followers.get(follower)
        start_advanced = progress is not None and log_start > progress.log_start_offset
        self.apply_effects(
            self.leader.follower_fetched(
                follower, fetch_offset, log_start, now_ms, broker_epoch=broker_epoch, may_join=may_join
            )
        )
        if start_advanced and self.watchers.operations:
            self.purgatory.check_and_complete(self.watchers)

    def maybe_shrink_isr(self, now_ms: int, lag_time_max_ms: int) -> None:
        """Propose an ISR without the followers that lag for longer than `lag_time_max_ms`."""
        if self.leader is not None and not self.leader.is_sole_replica and self.error != ErrorCode.KAFKA_STORAGE_ERROR:
            self.apply_effects(self.leader.maybe_shrink_isr(now_ms, lag_time_max_ms))

    def apply_isr(self, isr: frozenset[int], partition_epoch: int) -> None:
        """Apply the ISR that the controller has decided on."""
        assert self.leader is not None
        self.apply_effects(self.leader.apply_isr(isr, partition_epoch))
        self._update_checks()
        # A waiting Fetch of a follower that is no longer a replica, or not in the ISR, must be tried again.
        if self.replica_watchers.operations:
            self.purgatory.check_and_complete(self.replica_watchers)

    def drop_proposed_isr(self) -> None:
        """Drop the proposed ISR, which the controller has not accepted."""
        assert self.leader is not None
        self.apply_effects(self.leader.drop_proposed_isr())

    def apply_change_within_epoch(self, replicas: tuple[int, ...], isr: frozenset[int], partition_epoch: int) -> None:
        """Apply metadata with the same leader epoch: replicas and ISR may differ. Metadata with an old partition epoch
        is ignored, because it does not decide on a later proposal."""
        assert self.leader is not None
        if partition_epoch > self.leader.partition_epoch:
            if replicas != self.leader.replicas:
                self.apply_effects(self.leader.replicas_changed(replicas))
            self.apply_isr(isr, partition_epoch)

    def apply_effects(self, effects: list[Effect]) -> None:
        """Apply the effects that the leader core returned."""
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced():
                    self.high_watermark = effect.high_watermark
                    self.try_complete_delayed()
                case ProposeIsr():
                    self._propose(self, effect.isr)
                case _:
                    assert_never(effect)

    def wait_for_high_watermark(self, offset: int, timeout_ms: int) -> Deferred[ErrorCode]:
        """Return NONE when every in-sync replica has the records below `offset`; return an error if this broker loses
        the leadership or its log first, or REQUEST_TIMED_OUT."""
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
        return self.purgatory.watch([self.watchers], reached, lambda: ErrorCode.REQUEST_TIMED_OUT, timeout_ms)

    def take_offline(self) -> None:
        """Stop serving the partition because its disk failed; waiting requests get KAFKA_STORAGE_ERROR. The log has
        reported the reason."""
        if self.error != ErrorCode.KAFKA_STORAGE_ERROR:
            self.error = ErrorCode.KAFKA_STORAGE_ERROR
            if self._went_offline is not None:
                self._went_offline(self)
            self.try_complete_delayed()

    def try_complete_delayed(self) -> None:
        """Try all operations again that wait for this partition."""
        if self.watchers.operations:
            self.purgatory.check_and_complete(self.watchers)
        if self.replica_watchers.operations:
            self.purgatory.check_and_complete(self.replica_watchers)
