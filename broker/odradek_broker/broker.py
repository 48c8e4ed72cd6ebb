"""The broker: composes the parts that handlers reach through `ctx.broker`.

Owns the application of metadata deltas to all parts (`apply`). Leaves sockets to `network`, requests to `apis`, and the
parts of a process to `node`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from odradek_broker.apis.slices import LoopYielder
from odradek_broker.config import SYNC, BrokerConfig
from odradek_broker.disk_executor import DiskExecutor
from odradek_broker.environment import BrokerEnvironment
from odradek_broker.inter_broker.channel import BrokerChannels
from odradek_broker.metadata.cluster_ports import ClusterPorts, ControlRequests
from odradek_broker.metadata.internal_topics import CreationFailureLog
from odradek_broker.metadata.producer_ids import Block, NoProducerIdsError, ProducerIds
from odradek_broker.metadata.view import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek_broker.network.interceptors import Interceptors
from odradek_broker.purgatory import Purgatory, Watchers
from odradek_broker.replication.alter_partition_manager import AlterPartitionManager
from odradek_broker.replication.assignments_manager import AssignmentsManager
from odradek_broker.replication.core.fetch_session import FetchSessions
from odradek_broker.replication.follower_fetches import FollowerFetches
from odradek_broker.replication.future_logs import FutureLogs
from odradek_broker.replication.hosted_partitions import Partitions
from odradek_broker.replication.log_configs import LogConfigs
from odradek_broker.replication.log_directories import LogDirectories
from odradek_broker.replication.log_syncer import LogSyncer
from odradek_broker.replication.partition import Partition
from odradek_broker.replication.replica_alter_log_dirs_manager import ReplicaAlterLogDirsManager
from odradek_broker.replication.replica_fetcher_manager import ReplicaFetcherManager
from odradek_broker.replication.replica_logs import ReplicaLogs
from odradek_broker.replication.replica_manager import LocalReplicaChanges, ReplicaManager
from odradek_broker.replication.replication_quota_manager import ReplicationQuotaManager
from odradek_broker.replication.sealed_segments import SealedSegments
from odradek_broker.timers import Timers
from odradek_controller.configs.table import Resource
from odradek_controller.image import ClusterImage, ConfigResource, MetadataDelta, TopicImage
from odradek_log.directory import LogDirectory
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from odradek_broker.deferred import Deferred
    from odradek_broker.groups.group_coordinator import GroupCoordinator
    from odradek_broker.transactions.add_partitions_to_txn_manager import AddPartitionsToTxnManager
    from odradek_broker.transactions.transaction_coordinator import TransactionCoordinator
    from odradek_broker.transactions.transaction_marker_channel_manager import TransactionMarkerChannelManager
    from odradek_log.producer_state_manager import TransactionMarker

SESSION_EVICTION_MS = 120_000
"""The age from which a larger session may evict a fetch session (Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS)."""


class Broker:
    """The parts of one broker, as attributes."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        ports: ClusterPorts,
        environment: BrokerEnvironment,
        directories: list[LogDirectory],
        timers: Timers,
        executor: DiskExecutor,
        directory_failed: Callable[[], None] = lambda: None,
    ) -> None:
        """`directory_failed` is called after a log directory has gone offline with all its replicas."""
        self.config = config.for_release(ports.source.emulation.release)
        self.node_id = config.node_id
        self.metadata_source = ports.source
        self.controller_channel = ports.channel
        self.version_zero_offsets = ports.version_zero_offsets
        self._control_requests = ports.control_requests
        self._notify_log_dir_failure = ports.notify_log_dir_failure
        self._directory_failed = directory_failed
        self.emulation = ports.source.emulation
        self.image: ClusterImage = ports.source.image
        self.clock = environment.clock
        self.timers = timers
        self.executor = executor
        self.randbytes = environment.randbytes
        self.log = environment.log
        self.authorizer = environment.authorizer(self.config)
        self.quotas = environment.quotas(self.config)
        self.interceptors = Interceptors()
        self.purgatory = Purgatory(timers)
        self.first_metadata_watchers = Watchers()
        """Requests that wait for this broker's first metadata (`has_metadata`)."""
        self.follower_fetches = FollowerFetches(self.purgatory)
        self.partitions = Partitions()
        self.alter_partition_manager = AlterPartitionManager(self)
        self.replication_quotas = ReplicationQuotaManager(config)
        self.channels = BrokerChannels(self.node_id, config.inter_broker_listener, lambda: self.image)
        self.assignments_manager = AssignmentsManager(self)
        self.log_syncer = LogSyncer(executor) if config.our_setting(SYNC) == "always" else None
        """None unless every acknowledgement waits until the log is synced to the disk."""
        self.replica_fetcher_manager = ReplicaFetcherManager(
            self, channels=self.channels, quota=self.replication_quotas.follower, log_syncer=self.log_syncer
        )
        self._compose_replicas(directories)
        self.fetch_sessions = FetchSessions(
            config.integer("max.incremental.fetch.session.cache.slots"), SESSION_EVICTION_MS, self._session_id
        )
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self.creation_failures = CreationFailureLog(self.clock, self.log)
        self._group_coordinator: GroupCoordinator | None = None
        self._transaction_coordinator: TransactionCoordinator | None = None
        self._add_partitions_to_txn_manager: AddPartitionsToTxnManager | None = None
        self._stopped = False
        self._killed = False

    def _compose_replicas(self, directories: list[LogDirectory]) -> None:
        """Compose the parts that keep replicas, from log directories to moves between them."""
        self.log_directories = LogDirectories(directories, self.partitions, replicas_lost=self._replicas_lost)
        self.sealed_segments = SealedSegments(self.executor, self.timers, self.log_directories.handle_failure)
        log_configs = LogConfigs()
        self.replica_logs = ReplicaLogs(
            self.log_directories,
            log_configs,
            partitions=self.partitions,
            sealed_segments=self.sealed_segments,
            randbytes=self.randbytes,
            to_loop=self.executor.to_loop,
        )
        future_logs = FutureLogs(self.log_directories, self.replica_logs)
        self.replica_manager = ReplicaManager(
            self.node_id,
            partitions=self.partitions,
            replica_logs=self.replica_logs,
            future_logs=future_logs,
            log_directories=self.log_directories,
            configs=log_configs,
            new_partition=self._new_partition,
            now_ms=self.timers.now_ms,
            log_syncer=self.log_syncer,
        )
        self.alter_log_dirs_manager = ReplicaAlterLogDirsManager(
            self,
            log_directories=self.log_directories,
            future_logs=future_logs,
            assignments_manager=self.assignments_manager,
            quota=self.replication_quotas.alter_log_dirs,
            executor=self.executor,
        )

    @property
    def group_coordinator(self) -> GroupCoordinator:
        """The group coordinator, imported when the first group or `__consumer_offsets` appears."""
        if self._group_coordinator is None:
            from odradek_broker.groups.group_coordinator import GroupCoordinator

            self._group_coordinator = GroupCoordinator(
                config=lambda: self.config,
                image=lambda: self.image,
                has_metadata=lambda: self.has_metadata,
                add_partitions_to_txn_manager=lambda: self.add_partitions_to_txn_manager,
                clock=self.clock,
                timers=self.timers,
                log=self.log,
            )
        return self._group_coordinator

    @property
    def add_partitions_to_txn_manager(self) -> AddPartitionsToTxnManager:
        """Verifies transactions, imported when the first transaction begins in a partition of this broker."""
        if self._add_partitions_to_txn_manager is None:
            from odradek_broker.transactions.add_partitions_to_txn_manager import AddPartitionsToTxnManager

            self._add_partitions_to_txn_manager = AddPartitionsToTxnManager(
                node_id=self.node_id,
                image=lambda: self.image,
                channels=self.channels,
                local_coordinator=lambda: self.transaction_coordinator,
                request_timeout_s=self.config.integer("request.timeout.ms") / 1000,
                timers=self.timers,
                log=self.log,
            )
        return self._add_partitions_to_txn_manager

    @property
    def transaction_coordinator(self) -> TransactionCoordinator:
        """Imported when the first transactional id or `__transaction_state` appears."""
        if self._transaction_coordinator is None:
            from odradek_broker.transactions.transaction_coordinator import TransactionCoordinator

            self._transaction_coordinator = TransactionCoordinator(
                config=lambda: self.config,
                image=lambda: self.image,
                markers=self._transaction_marker_channel_manager(),
                producer_ids=self.producer_ids,
                clock=self.clock,
                timers=self.timers,
                log=self.log,
            )
        return self._transaction_coordinator

    def _transaction_marker_channel_manager(self) -> TransactionMarkerChannelManager:
        from odradek_broker.transactions.marker_writing import write_marker
        from odradek_broker.transactions.transaction_marker_channel_manager import TransactionMarkerChannelManager

        request_timeout_ms = self.config.integer("request.timeout.ms")

        def write(topic: str, index: int, marker: TransactionMarker) -> ErrorCode | Deferred[ErrorCode]:
            return write_marker(self.partitions, topic, index, marker, request_timeout_ms)

        return TransactionMarkerChannelManager(
            node_id=self.node_id,
            image=lambda: self.image,
            has_metadata=lambda: self.has_metadata,
            channels=self.channels,
            write_marker=write,
            request_timeout_s=request_timeout_ms / 1000,
            socket_timeout_s=self.config.integer("replica.socket.timeout.ms") / 1000,
            timers=self.timers,
            log=self.log,
        )

    @property
    def transactions_in_use(self) -> tuple[TransactionCoordinator | None, AddPartitionsToTxnManager | None]:
        """The transaction coordinator and the AddPartitionsToTxnManager, each None until a request needs it."""
        return self._transaction_coordinator, self._add_partitions_to_txn_manager

    @property
    def control_requests(self) -> ControlRequests:
        """The handler of inter-broker requests; only a broker that has one serves their APIs."""
        assert self._control_requests is not None
        return self._control_requests

    @property
    def has_metadata(self) -> bool:
        """Whether this broker has received its first metadata, so that a topic that is not in the image does not exist.

        Over ZooKeeper a broker serves clients before the controller has sent it an UpdateMetadata request.
        """
        own = self.image.brokers.get(self.node_id)
        return own is not None and not own.fenced

    @property
    def coordinators_ready(self) -> bool:
        """Whether every group and transaction that this broker coordinates is loaded."""
        return (self._group_coordinator is None or self._group_coordinator.ready) and (
            self._transaction_coordinator is None or self._transaction_coordinator.ready
        )

    def stop_coordinators(self) -> None:
        """Complete the requests that wait for a coordinator of this broker, with an error."""
        if self._group_coordinator is not None:
            self._group_coordinator.stop()
        if self._transaction_coordinator is not None:
            self._transaction_coordinator.stop()

    @property
    def epoch(self) -> int:
        """The epoch of this broker's registration; -1 before it."""
        registration = self.image.brokers.get(self.node_id)
        return -1 if registration is None else registration.epoch

    def load(self) -> None:
        """Open the logs in the log directories, with the stored dynamic configuration, before the first delta."""
        image = self.metadata_source.image
        self.config = self.config.with_dynamic(image)
        self.replica_logs.load(self.config, image.topic_configs)

    def apply(self, delta: MetadataDelta) -> AsyncIterator[None] | None:
        """Bring partitions, coordinators and configuration in line with the new image. Nothing else changes them.

        A usual delta is applied when this returns. For one with many new or deleted replicas return an iterator of
        three steps: it adds replicas, with turns of the event loop for requests; applies the delta; deletes logs, again
        with turns for requests. All brokers of a process take a step before one of them takes the next: so none fetches
        from a broker without the replica, and none that stops during the deletions has not applied the delta."""
        if self.replica_manager.is_large(delta) and self._own_resources().isdisjoint(delta.configs):
            return self._apply_large(delta)
        changes = LocalReplicaChanges()
        try:
            self._apply(delta, changes)
        finally:  # no later delta deletes these logs
            for delete in changes.deletions:
                delete()
        return None

    async def _apply_large(self, delta: MetadataDelta) -> AsyncIterator[None]:
        changes = LocalReplicaChanges()
        await self._add_in_turns(self.replica_manager.additions(delta, changes))
        yield
        if self._stopped:
            return
        try:
            self._apply(delta, changes)
            added = [self.partitions.get_by_id(*key) for key in changes.added]
            failed = [each for each in added if each is not None and each.error == ErrorCode.KAFKA_STORAGE_ERROR]
            if failed:  # their disk failed before the image had them
                self._replicas_lost(failed)
            yield
        finally:  # no later delta deletes these logs
            await self._delete_in_turns(changes.deletions)

    async def _add_in_turns(self, additions: Iterable[Callable[[], None]]) -> None:
        """Add replicas, with turns of the event loop for requests, until the broker stops."""
        yielder = LoopYielder()
        for add in additions:
            if self._stopped:
                return
            add()
            await yielder.yield_if_due()

    async def _delete_in_turns(self, deletions: Iterable[Callable[[], None]]) -> None:
        """Delete logs, with turns of the event loop for requests. A broker that stops deletes the rest in one turn,
        because it would find these logs at its next start as strays."""
        yielder = LoopYielder()
        for delete in deletions:
            if self._killed:
                return
            delete()
            if not self._stopped:
                await yielder.yield_if_due()

    def _apply(self, delta: MetadataDelta, changes: LocalReplicaChanges) -> None:
        """Apply the delta, except for the deletion of logs, and add to `changes`."""
        self.image = delta.image
        self.authorizer.apply(delta)
        self.quotas.apply(delta)
        if not self._own_resources().isdisjoint(delta.configs):
            self.config = self.config.with_dynamic(delta.image)
        if delta.configs:
            self.replication_quotas.apply(delta)
        self.replica_manager.apply(delta, self.config, changes)
        for partition in changes.not_following:
            self.replica_fetcher_manager.remove(partition)
        for partition, leader in changes.following:
            self.replica_fetcher_manager.add(partition, leader)
        if changes.replicas_changed or any(
            each.leader is not None and not each.leader.is_sole_replica for each in changes.elected
        ):
            self.follower_fetches.complete_all()
        self.assignments_manager.report(changes.directory_differs)
        for partition, directory, future in changes.future_logs:
            self.alter_log_dirs_manager.begin_with(partition, directory, future)
        for broker_id in sorted(delta.brokers):
            if not delta.image.is_active(broker_id):
                self._stop_waiting_for(broker_id)
        if self._group_coordinator is not None:
            self._group_coordinator.metadata_changed(delta)
        for partition in changes.resigned:
            if partition.topic == CONSUMER_OFFSETS:
                self.group_coordinator.resigned(partition.index)
            elif partition.topic == TRANSACTION_STATE:
                self.transaction_coordinator.resigned(partition.index)
        for partition in changes.elected:
            if partition.topic == CONSUMER_OFFSETS:
                self.group_coordinator.elected(partition)
            elif partition.topic == TRANSACTION_STATE:
                self.transaction_coordinator.elected(partition)
        if self._transaction_coordinator is not None:
            self._transaction_coordinator.metadata_changed(delta)
        if self.first_metadata_watchers.operations and self.has_metadata:
            self.purgatory.check_and_complete(self.first_metadata_watchers)

    def _replicas_lost(self, partitions: Sequence[Partition]) -> None:
        """Stop fetching these partitions and report them, so that another replica can become leader."""
        for partition in partitions:
            self.replica_fetcher_manager.remove(partition)
        if self._notify_log_dir_failure is not None:
            self._notify_log_dir_failure()
        elif self.image.levels.directory_assignment:
            self.assignments_manager.report([each for each in partitions if self._has_other_replicas(each)])
        if any(directory.offline for directory in self.log_directories.all):
            self._directory_failed()

    def _new_partition(self, topic: TopicImage, index: int) -> Partition:
        return Partition(
            topic.name,
            topic.id,
            index,
            purgatory=self.purgatory,
            propose=self.alter_partition_manager.propose,
            went_offline=self.log_directories.handle_offline_partition,
            log_syncer=self.log_syncer,
        )

    def _has_other_replicas(self, partition: Partition) -> bool:
        registration = self.image.partition(partition.topic_id, partition.index)
        return registration is not None and len(registration.replicas) > 1

    def _stop_waiting_for(self, broker_id: int) -> None:
        """Do not wait for a broker that is fenced or shuts down to join an ISR or to delete records."""
        for partition in self.partitions:
            leader = partition.leader
            if leader is not None and broker_id in leader.followers:
                partition.apply_effects(leader.stop_waiting_for(broker_id))
                partition.try_complete_delayed()

    def maybe_shrink_isr(self) -> None:
        """Propose ISRs without the followers that lag for longer than `replica.lag.time.max.ms`."""
        now_ms, lag_time_max_ms = self.timers.now_ms(), self.config.integer("replica.lag.time.max.ms")
        for partition in self.partitions:
            partition.maybe_shrink_isr(now_ms, lag_time_max_ms)

    async def stop_replication(self, *, killed: bool = False) -> None:
        """Stop fetchers, ISR proposals, moves, directory reports, transaction verification, markers and the request for
        producer ids, in this order. When this returns, none of them has a task. A broker that is `killed` deletes no
        more logs."""
        self._stopped = True
        self._killed = self._killed or killed
        await self.replica_fetcher_manager.close()
        await self.alter_partition_manager.close()
        await self.alter_log_dirs_manager.close()
        await self.assignments_manager.close()
        if self._add_partitions_to_txn_manager is not None:
            await self._add_partitions_to_txn_manager.close()
        if self._transaction_coordinator is not None:
            await self._transaction_coordinator.close()
        self.producer_ids.close()

    def clear_fetch_sessions(self) -> None:
        """Remove all fetch sessions, after a reset of the cluster."""
        self.fetch_sessions.clear()

    def _own_resources(self) -> set[ConfigResource]:
        return {ConfigResource(Resource.BROKER, ""), ConfigResource(Resource.BROKER, str(self.node_id))}

    def _session_id(self) -> int:
        return int.from_bytes(self.randbytes(4), "big") & 0x7FFF_FFFF

    async def _allocate_producer_ids(self) -> Block:
        response: AllocateProducerIdsResponse = await self.controller_channel.submit(
            AllocateProducerIdsRequest(self.node_id, self.epoch)
        )
        if response.error_code:
            raise NoProducerIdsError(ErrorCode(response.error_code).name)
        return Block(response.producer_id_start, response.producer_id_len)
