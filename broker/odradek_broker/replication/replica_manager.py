"""The replica manager: applies metadata deltas to the partitions of this broker.

Owns which partitions this broker has, and which it leads or follows. A broker cannot refuse the decisions of the
controller that a delta has: when a disk fails, the replica goes offline. Leaves logs to `replica_logs`, moves between
directories to `future_logs`, failing disks to `log_directories`, and the work of one partition to `partition`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from odradek_broker.config import BrokerConfig
from odradek_broker.metadata.directory_identity import directory_id_of
from odradek_broker.replication.core.partition_leader import PartitionLeader
from odradek_broker.replication.future_logs import FutureLog, FutureLogs
from odradek_broker.replication.hosted_partitions import Partitions
from odradek_broker.replication.log_configs import LogConfigs
from odradek_broker.replication.log_directories import LogDirectories
from odradek_broker.replication.log_syncer import LogSyncer
from odradek_broker.replication.partition import Partition
from odradek_broker.replication.replica_logs import ReplicaLogs
from odradek_controller.configs.table import Resource
from odradek_controller.image import NO_LEADER, MetadataDelta, PartitionRegistration, ReplicaAction, TopicImage
from odradek_log.log import Log
from odradek_wire.errors import ErrorCode
from odradek_wire.uuid import Uuid

LARGE_DELTA = 100
"""A delta with more changed or deleted partitions is large."""


@dataclass(slots=True)
class LocalReplicaChanges:
    """The changes that a delta made to this broker's partitions; a partition may be in several lists."""

    elected: list[Partition] = field(default_factory=list)
    """Partitions that this broker leads now, or leads in a new epoch."""
    resigned: list[Partition] = field(default_factory=list)
    """Partitions that this broker no longer leads, or no longer has."""
    following: list[tuple[Partition, int]] = field(default_factory=list)
    """Partitions that follow a leader now, each with the leader's id."""
    not_following: list[Partition] = field(default_factory=list)
    """Partitions that follow no leader now."""
    replicas_changed: list[Partition] = field(default_factory=list)
    """Partitions that this broker leads as before, with other replicas."""
    directory_differs: list[Partition] = field(default_factory=list)
    """Partitions that the controller assigned to another directory than the one they are in."""
    future_logs: list[FutureLog] = field(default_factory=list)
    """Moves to another directory that were in progress when the broker last stopped."""
    added: set[tuple[Uuid, int]] = field(default_factory=set)
    """Partitions that `ReplicaManager.additions` has added, by topic id and index."""
    deletions: list[Callable[[], None]] = field(default_factory=list)
    """Steps that delete logs of partitions that this broker no longer has; the caller takes them after the others."""


class ReplicaManager:
    """The replicas of one broker. The broker passes each metadata delta to `apply`, in order."""

    def __init__(
        self,
        node_id: int,
        *,
        partitions: Partitions,
        replica_logs: ReplicaLogs,
        future_logs: FutureLogs,
        log_directories: LogDirectories,
        configs: LogConfigs,
        new_partition: Callable[[TopicImage, int], Partition],
        now_ms: Callable[[], int],
        log_syncer: LogSyncer | None,
    ) -> None:
        """`new_partition` returns a partition without a log; `now_ms` reads the clock of timeouts; `log_syncer` is
        given if acknowledgements wait for the disk."""
        self._node_id = node_id
        self._partitions = partitions
        self._replica_logs = replica_logs
        self._future_logs = future_logs
        self._log_directories = log_directories
        self._configs = configs
        self._new_partition = new_partition
        self._now_ms = now_ms
        self._log_syncer = log_syncer
        self._applied = False
        """Whether a delta was applied."""

    def is_large(self, delta: MetadataDelta) -> bool:
        """Return whether the delta may add or delete more than `LARGE_DELTA` replicas. The first one is not large,
        because a broker that starts serves no client yet."""
        replicas = len(delta.replica_actions) + sum(map(len, delta.partitions.values()))
        replicas += sum(len(topic.partitions) for topic in delta.deleted_topics.values())
        return self._applied and replicas > LARGE_DELTA

    def additions(self, delta: MetadataDelta, changes: LocalReplicaChanges) -> Iterator[Callable[[], None]]:
        """Yield a step for each new replica, which adds its partition and log before `apply`, as no client uses the
        partition yet. A topic that was deleted and created again is left to `apply`."""
        if delta.replica_actions:
            return
        deleted = {topic.name for topic in delta.deleted_topics.values()}
        for topic_id, indexes in delta.partitions.items():
            topic = delta.image.topics_by_id[topic_id]
            for index in indexes:
                is_here = self._node_id in topic.partitions[index].replicas
                if is_here and topic.name not in deleted and self._partitions.get_by_id(topic_id, index) is None:
                    changes.added.add((topic_id, index))
                    yield partial(self._apply_partition, delta, topic, index, changes)

    def apply(self, delta: MetadataDelta, config: BrokerConfig, changes: LocalReplicaChanges) -> None:
        """Bring the partitions in line with the delta's image, and add to `changes`, which may have those of
        `additions`. The caller deletes logs (`deletions`), also if this raises."""
        self._applied = True
        if config is not self._configs.broker_config:
            self._configs.use(config)
            self._reconfigure(delta, self._partitions)
        for (name, index), action in delta.replica_actions.items():
            self._apply_action(action, name, index, changes)
        for topic in delta.deleted_topics.values():
            for index in range(len(topic.partitions)):
                partition = self._partitions.get_by_id(topic.id, index)
                if partition is not None:
                    # A topic that was created again needs the names of its logs now.
                    self._delete(partition, changes, immediately=topic.name in delta.image.topics)
        for topic_id, indexes in delta.partitions.items():
            topic = delta.image.topics_by_id[topic_id]
            for index in indexes:
                if (topic_id, index) not in changes.added:
                    self._apply_partition(delta, topic, index, changes)
        changed = {resource.name for resource in delta.configs if resource.type == Resource.TOPIC}
        for name in sorted(changed):
            self._reconfigure(delta, self._partitions.of_topic(name))
        if delta.complete and not self._replica_logs.started:
            self._replica_logs.finish_start()
            changes.future_logs = self._future_logs.find_at_start(self._partitions)

    def _apply_partition(
        self, delta: MetadataDelta, topic: TopicImage, index: int, changes: LocalReplicaChanges
    ) -> None:
        registration = topic.partitions[index]
        partition = self._partitions.get_by_id(topic.id, index)
        if self._node_id not in registration.replicas:
            if partition is not None:
                self._delete(partition, changes)
            return
        if partition is None:
            partition = self._open(delta, topic, index)
        if delta.image.levels.directory_assignment and self._directory_differs(partition, registration):
            changes.directory_differs.append(partition)
        leader = registration.leader
        if leader == self._node_id:
            self._lead(partition, registration, changes)
            return
        if partition.leader is not None:
            changes.resigned.append(partition)
        if leader == NO_LEADER:
            partition.resign(registration.leader_epoch)
            changes.not_following.append(partition)
        elif not partition.is_following or partition.leader_epoch != registration.leader_epoch:
            partition.follow(registration.leader_epoch)
            if partition.is_following:
                changes.following.append((partition, leader))

    def _open(self, delta: MetadataDelta, topic: TopicImage, index: int) -> Partition:
        config = self._configs.of(delta.image.topic_configs(topic.name))
        partition = self._new_partition(topic, index)
        broker_config = self._configs.broker_config
        partition.strict_validation = broker_config is not None and broker_config.strict_validation
        partition.set_min_insync_replicas(config.min_insync_replicas)
        self._partitions.add(partition)
        self._replica_logs.open(partition, config, topic.partitions[index].directory(self._node_id))
        return partition

    def _directory_differs(self, partition: Partition, registration: PartitionRegistration) -> bool:
        """Return whether the controller assigned the replica to another directory; during a move either is right."""
        actual = None if partition.directory is None else directory_id_of(partition.directory)
        assigned = registration.directory(self._node_id)
        if actual is None or assigned == actual or partition.error == ErrorCode.KAFKA_STORAGE_ERROR:
            return False
        if assigned is None or partition.future is None:
            return True
        target = self._log_directories.by_id(assigned)
        return target is None or (partition.topic, partition.index) not in target.futures

    def _lead(self, partition: Partition, registration: PartitionRegistration, changes: LocalReplicaChanges) -> None:
        if partition.error == ErrorCode.KAFKA_STORAGE_ERROR:
            return
        if partition.leader is None or partition.leader_epoch != registration.leader_epoch:
            self._begin_leader_epoch(partition, registration)
            changes.not_following.append(partition)
            changes.elected.append(partition)
        else:
            if partition.leader.replicas != registration.replicas:
                changes.replicas_changed.append(partition)
            partition.apply_change_within_epoch(
                registration.replicas, frozenset(registration.isr), registration.partition_epoch
            )

    def _begin_leader_epoch(self, partition: Partition, registration: PartitionRegistration) -> None:
        log = partition.log
        partition.become_leader(
            PartitionLeader(
                self._node_id,
                leader_epoch=registration.leader_epoch,
                partition_epoch=registration.partition_epoch,
                replicas=registration.replicas,
                isr=frozenset(registration.isr),
                log_end_offset=log.log_end_offset,
                high_watermark=partition.high_watermark,
                now_ms=self._now_ms(),
                min_isr=partition.min_insync_replicas,
                synced_offset=None if self._log_syncer is None else log.recovery_point,
            )
        )
        if self._log_syncer is not None:
            self._log_syncer.begin(partition)
        log.leader_epochs.assign(registration.leader_epoch, log.log_end_offset)

    def _apply_action(self, action: ReplicaAction, topic: str, index: int, changes: LocalReplicaChanges) -> None:
        """Apply an action of ZooKeeper mode; it may name a log that no topic has claimed since the start."""
        partition = self._partitions.get(topic, index)
        if action is ReplicaAction.STOP:
            if partition is not None:
                changes.not_following.append(partition)
                changes.resigned.append(partition)
                partition.resign(partition.leader_epoch)
            return
        if partition is not None:
            self._remove(partition, changes)
        if action is ReplicaAction.DELETE:
            changes.deletions.append(partial(self._replica_logs.delete_all_named, topic, index))
        else:
            self._replica_logs.set_aside_all_named(topic, index)

    def _delete(self, partition: Partition, changes: LocalReplicaChanges, *, immediately: bool = False) -> None:
        self._remove(partition, changes)
        if immediately:
            self._replica_logs.delete_log_of(partition)
        else:
            changes.deletions.append(partial(self._replica_logs.delete_log_of, partition))

    def _remove(self, partition: Partition, changes: LocalReplicaChanges) -> None:
        """Stop serving the partition; its log stays."""
        changes.not_following.append(partition)
        changes.resigned.append(partition)
        partition.resign(partition.leader_epoch, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._partitions.remove(partition)
        self._future_logs.delete_of(partition)

    def _reconfigure(self, delta: MetadataDelta, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            config = self._configs.of(delta.image.topic_configs(partition.topic))
            partition.set_min_insync_replicas(config.min_insync_replicas)
            for log in (partition.served_log, partition.future):
                if log is not None and log.config != config:
                    log.update_config(config)


def healthy_logs(partitions: Iterable[Partition]) -> list[Log]:
    """Return the logs of these partitions that have not failed."""
    return [log for partition in partitions if (log := partition.served_log) is not None and log.offline_cause is None]
