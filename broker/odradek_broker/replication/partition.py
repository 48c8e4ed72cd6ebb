"""One partition on this broker: its log joined to its leader core and to the requests that wait for it.

Owns appending as leader, the high watermark that readers see, waking waiters, and going offline when the disk fails.
Leaves the rule of the high watermark to `core.partition_leader`, bytes to the log, and who leads what to metadata
deltas (`replica_manager.py`).
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


class Copying(Protocol):
    """Whoever copies a partition from its leader."""

    def touch(self, partition: Partition) -> None:
        """Something about the log changed that the leader is told."""


class Coordinator(Protocol):
    """What keeps its state in a partition, and has to know when a transaction ends there."""

    @property
    def is_ready(self) -> bool:
        """Whether it has loaded what was there before."""

    def transaction_ended(self, marker: TransactionMarker) -> None:
        """The marker stands at the log's end; it counts when the high watermark has passed it."""


class Partition:
    """A replica hosted here. `error` says at a glance whether a client may use it: NONE on the leader with a healthy
    log."""

    __slots__ = (
        "_first_new_offset",
        "_propose",
        "_went_offline",
        "bytes_in",
        "bytes_out",
        "coordinator",
        "directory",
        "error",
        "fetcher",
        "follows",
        "future",
        "high_watermark",
        "index",
        "leader",
        "leader_epoch",
        "log",
        "log_syncer",
        "min_insync_replicas",
        "needs_full_checks",
        "purgatory",
        "replica_watchers",
        "served_log",
        "strict",
        "topic",
        "topic_id",
        "watchers",
    )

    log: Log
    """Not there while `error` is KAFKA_STORAGE_ERROR from the start; ask `error` first, or `served_log`."""

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
        """Who waits for the high watermark: consumers, produces, coordinators."""
        self.replica_watchers = Watchers()
        """Who waits for the log's end: followers."""
        self.leader: PartitionLeader | None = None
        self.leader_epoch = -1
        self.bytes_in = 0
        self.bytes_out = 0
        self._first_new_offset = 0
        self.high_watermark = 0
        self.min_insync_replicas = 1
        self.needs_full_checks = topic in INTERNAL_TOPICS or log_syncer is not None
        """Whether a produce must be looked at closely: an internal topic, too few replicas in sync, or an answer that
        waits for the disk."""
        self.strict = False
        self.follows = False
        """Whether a leader is followed."""
        self.coordinator: Coordinator | None = None
        """Where group coordinators keep what is committed in transactions."""
        self.fetcher: Copying | None = None
        self.future: Log | None = None
        """A copy in another log directory that will take the log's place."""
        self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def use(self, log: Log, directory: LogDirectory, high_watermark: int = 0) -> None:
        """Serve this log, of which so much is known to be committed: what was written down last."""
        self.log = self.served_log = log
        self.directory = directory
        self.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self._first_new_offset = log.log_end_offset

    def replace_log(self, log: Log, directory: LogDirectory) -> None:
        """The copy in another directory has everything, and is the log now."""
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
        """Where read_committed stops: where the oldest transaction begins whose outcome is not known to be in all
        in-sync replicas, else at the high watermark. It moves when that does, or the log's start."""
        if not self.log.producers.transactions.any:
            return self.high_watermark  # without a further call, for it is asked in every fetch
        unstable = self.log.first_unstable_offset(self.high_watermark)
        return self.high_watermark if unstable is None else min(unstable, self.high_watermark)

    @property
    def waits_for_disk(self) -> bool:
        """Whether something must be synced before it is acknowledged, and has not been, or cannot be."""
        return self.log_syncer is not None and self.log.recovery_point < self.log.log_end_offset

    @property
    def is_behind_epoch_start(self) -> bool:
        """Whether less is committed than there was when this leader was elected (KIP-207)."""
        return self.leader is not None and self.high_watermark < self.leader.leader_epoch_start_offset

    def check_epoch(self, asked: int) -> ErrorCode:
        """May a client that believes in leader epoch `asked` (-1: it does not say) use this partition now? Who believes
        in another one is told so first, also by a follower."""
        if asked in (-1, self.leader_epoch) or self.error == ErrorCode.KAFKA_STORAGE_ERROR:
            return self.error
        return ErrorCode.FENCED_LEADER_EPOCH if asked < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def set_min_insync_replicas(self, count: int) -> None:
        self.min_insync_replicas = count
        if self.leader is not None:
            self.apply_effects(self.leader.set_min_isr(count))
        self._update_checks()

    def _update_checks(self) -> None:
        under_min_isr = self.leader is not None and self.leader.under_min_isr
        self.needs_full_checks = self.topic in INTERNAL_TOPICS or under_min_isr or self.log_syncer is not None

    def become_leader(self, leader: PartitionLeader) -> None:
        """A new leader epoch in which this broker leads."""
        self.follows = False
        self.leader = leader
        self.leader_epoch = leader.leader_epoch
        self.high_watermark = leader.high_watermark
        self._update_checks()
        if self.error != ErrorCode.KAFKA_STORAGE_ERROR:
            self.error = ErrorCode.NONE
        self.wake()

    def resign(self, leader_epoch: int, error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
        """Another broker leads, or nobody, or the topic is gone: whoever waits here is answered with `error`."""
        self.leader = None
        self.follows = False
        self.leader_epoch = leader_epoch
        if self.error != ErrorCode.KAFKA_STORAGE_ERROR:
            self.error = error
        self.wake()

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, adds: bool
    ) -> VerificationGuard | ErrorCode:
        """Before a transactional batch is appended by the leader: what to bring once its coordinator has confirmed that
        this partition is part of the transaction, or (`adds`) has added it. ONGOING when it need not be asked, or
        why the batch is refused anyway."""
        if self.leader is None or self.error:
            return self.error
        log = self.log
        found = log.producers.begin_verification(
            producer_id, producer_epoch, sequence, adds=adds, now_ms=log.env.wall_ms()
        )
        return found.error if isinstance(found, Rejection) else found

    def append(
        self,
        records: bytearray | memoryview,
        origin: AppendOrigin = _CLIENT,
        guard: VerificationGuard | None = None,
    ) -> AppendResult:
        """Append complete batches as leader. Offsets and the leader epoch are written into the given buffer. A batch
        that begins a transaction is refused unless `guard` is what `begin_verification` gave, or NOT_REQUIRED.

        What the client did wrong, and a disk that fails, both come back as `Rejection`; a failing disk takes the
        partition offline first."""
        leader = self.leader
        if leader is None or self.error:
            return Rejection(self.error, "this broker does not lead the partition")
        partition_log = self.log
        try:
            if origin is _CLIENT:
                result = partition_log.append(records, self.leader_epoch, strict=self.strict, guard=guard)
            else:
                result = partition_log.append(records, self.leader_epoch, origin=origin, guard=guard)
        except STORAGE_ERRORS as error:
            self.take_offline()
            return Rejection(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        self.bytes_in += len(records)
        if leader.is_sole_replica and self.log_syncer is None:
            # Our log is the whole ISR: its end is the high watermark, without asking the core (profile of 1 KiB
            # produces). `partition_leader` lists every such place.
            self.high_watermark = leader.high_watermark = leader.log_end_offset = partition_log.log_end_offset
            if self.watchers.operations:
                self.purgatory.check_and_complete(self.watchers)
        else:
            if self.replica_watchers.operations:
                self.purgatory.check_and_complete(self.replica_watchers)
            if self.log_syncer is None:
                self.apply_effects(leader.appended(partition_log.log_end_offset))
            else:
                self.log_syncer.begin(self)
        return result

    def synced(self) -> None:
        """More of the log is on the disk; there is a leader core only if that counts."""
        if self.leader is not None and not self.error:
            self.apply_effects(self.leader.appended(max(self.log.recovery_point, self.leader.log_end_offset)))
            self.wake()  # acks=1 waits for nothing else

    def end_transaction(self, marker: TransactionMarker) -> AppendResult:
        """Append the marker that ends a producer's transaction here, for all replicas in sync to have."""
        # Most brokers never see one.
        from odradek_wire.records.control import end_txn_marker_batch

        leader = self.leader
        if leader is None or self.error:
            return Rejection(self.error, "this broker does not lead the partition")
        if leader.under_min_isr:
            return Rejection(ErrorCode.NOT_ENOUGH_REPLICAS, "too few replicas are in sync")
        coordinator = self.coordinator
        if coordinator is not None and not coordinator.is_ready:
            # Transaction coordinators know no better word for it, and try again.
            return Rejection(ErrorCode.NOT_LEADER_OR_FOLLOWER, "what the partition keeps is not loaded")
        rejection = self.log.producers.check_marker(marker)
        if rejection is not None:
            return rejection
        # Nobody may ever read here: what was decided long ago is not remembered for that.
        self.log.producers.transactions.on_high_watermark_updated(self.high_watermark)
        batch = end_txn_marker_batch(
            commit=marker.commit,
            coordinator_epoch=marker.coordinator_epoch,
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            timestamp=self.log.env.wall_ms(),
        )
        result = self.append(batch, AppendOrigin.COORDINATOR)
        if coordinator is not None and not isinstance(result, Rejection):
            coordinator.transaction_ended(marker)
        return result

    # -- as a follower ------------------------------------------------------------------------------------------------

    def follow(self, leader_epoch: int) -> None:
        """Another broker leads in this epoch, and is fetched from."""
        self.resign(leader_epoch)
        self.follows = self.error != ErrorCode.KAFKA_STORAGE_ERROR

    def append_as_follower(self, records: memoryview, leader_high_watermark: int, leader_start: int) -> None:
        """Append batches as the leader has them, and learn what is committed and what is deleted.

        Raises CorruptRecordError, and what a failing disk raises."""
        log = self.log
        if records:
            log.append_as_follower(records)
            self.bytes_in += len(records)
        reached = min(leader_high_watermark, log.log_end_offset)
        starts_later = leader_start > log.log_start_offset
        if starts_later:
            log.advance_log_start_offset(min(leader_start, log.log_end_offset))
        if reached > self.high_watermark:
            self.high_watermark = reached
            log.producers.transactions.on_high_watermark_updated(reached)
            self.wake()
        elif starts_later:
            self.wake()

    def truncate_to(self, offset: int) -> bool:
        """Give up what the leader does not have. Whether a checkpoint of the directory says of some of it that it is on
        the disk, or clean: they must be written anew before anything is appended. Raises what a failing disk raises."""
        vouched = max(self.log.recovery_point, self.log.cleaner.checkpoint or 0)
        self.log.truncate_to(offset)
        if self.future is not None:
            with suppress(*STORAGE_ERRORS):  # reported by the log; whoever copies finds it failed
                self.future.truncate_to(offset)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        return self.log.log_end_offset < vouched

    def start_at(self, offset: int) -> bool:
        """Give up everything: the leader's log begins after ours ends. As `truncate_to`."""
        vouched = max(self.log.recovery_point, self.log.cleaner.checkpoint or 0)
        self.log.truncate_fully_and_start_at(offset)
        self.high_watermark = offset
        return vouched > 0

    def log_start_offset_advanced(self) -> None:
        """Records were deleted at the log's beginning: readers, followers and the leader are told."""
        if self.fetcher is not None:
            self.fetcher.touch(self)
        self.wake()

    # -- the in-sync replicas -----------------------------------------------------------------------------------------

    def follower_fetched(
        self, follower: int, fetch_offset: int, log_start: int, now_ms: int, broker_epoch: int, may_join: bool
    ) -> None:
        """A follower holds everything before the offset at which it fetches."""
        assert self.leader is not None
        progress = self.leader.followers.get(follower)
        begins_later = progress is not None and log_start > progress.log_start_offset
        self.apply_effects(
            self.leader.follower_fetched(
                follower, fetch_offset, log_start, now_ms, broker_epoch=broker_epoch, may_join=may_join
            )
        )
        if begins_later and self.watchers.operations:
            self.purgatory.check_and_complete(self.watchers)

    def check_lag(self, now_ms: int, lag_time_max_ms: int) -> None:
        """Propose to drop followers that have been behind for too long."""
        if self.leader is not None and not self.leader.is_sole_replica and self.error != ErrorCode.KAFKA_STORAGE_ERROR:
            self.apply_effects(self.leader.check_lag(now_ms, lag_time_max_ms))

    def isr_decided(self, isr: frozenset[int], partition_epoch: int) -> None:
        """The controller's word on the in-sync replicas."""
        assert self.leader is not None
        self.apply_effects(self.leader.isr_decided(isr, partition_epoch))
        self._update_checks()
        # Followers that are no replicas any more, or not in sync, are to be seen as such at their next fetch, though
        # nothing else happens to them.
        if self.replica_watchers.operations:
            self.purgatory.check_and_complete(self.replica_watchers)

    def isr_refused(self) -> None:
        """The controller did not change them, for certain."""
        assert self.leader is not None
        self.apply_effects(self.leader.isr_refused())

    def changed_within_epoch(self, replicas: tuple[int, ...], isr: frozenset[int], partition_epoch: int) -> None:
        """Metadata: the leader and its epoch stay, others may have copies or be in sync now. What it knew before is no
        news, and says nothing of what it has proposed since."""
        assert self.leader is not None
        if partition_epoch > self.leader.partition_epoch:
            if replicas != self.leader.replicas:
                self.apply_effects(self.leader.replicas_changed(replicas))
            self.isr_decided(isr, partition_epoch)

    def apply_effects(self, effects: list[Effect]) -> None:
        """Do what the leader core decided."""
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced():
                    self.high_watermark = effect.high_watermark
                    self.wake()
                case ProposeIsr():
                    self._propose(self, effect.isr)
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
        return self.purgatory.watch([self.watchers], reached, lambda: ErrorCode.REQUEST_TIMED_OUT, timeout_ms)

    def take_offline(self) -> None:
        """The disk under this log fails: nothing is served from it any more, and everybody who waits is told. Why is in
        the log already, said by who met it."""
        if self.error != ErrorCode.KAFKA_STORAGE_ERROR:
            self.error = ErrorCode.KAFKA_STORAGE_ERROR
            if self._went_offline is not None:
                self._went_offline(self)
            self.wake()

    def wake(self) -> None:
        """Something about this partition changed: whoever waits looks again."""
        if self.watchers.operations:
            self.purgatory.check_and_complete(self.watchers)
        if self.replica_watchers.operations:
            self.purgatory.check_and_complete(self.replica_watchers)
