"""From metadata to partitions: which logs are here, which of them this broker leads, what settings they have.

Owns creating, leading, resigning and deleting partitions as deltas say, over one or more log directories. A delta says
what is decided already, so that a disk that fails refuses nothing: it takes its directory offline with all partitions
there, and the other directories go on. Leaves what a partition is to `partition.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek_broker.config import BrokerConfig
from odradek_broker.metadata.directory_identity import id_of
from odradek_broker.purgatory import Purgatory
from odradek_broker.replication.core.partition_leader import PartitionLeader
from odradek_broker.replication.hosted_partitions import Partitions
from odradek_broker.replication.partition import Partition, Propose
from odradek_broker.replication.sealed_segments import SealedSegments
from odradek_broker.replication.syncing import Syncing
from odradek_controller.configs.table import Resource
from odradek_controller.image import NO_LEADER, MetadataDelta, PartitionRegistration, ReplicaAction, TopicImage
from odradek_log.config import LogConfig
from odradek_log.directory import LogDirectory
from odradek_log.errors import CorruptLogError, LogOfflineError
from odradek_log.log import Log
from odradek_wire.errors import ErrorCode
from odradek_wire.records.record_errors import CorruptRecordError
from odradek_wire.uuid import Uuid


class Changes(NamedTuple):
    """What a delta did to the partitions here."""

    elected: list[Partition]
    """They lead now, or in a new epoch."""
    resigned: list[Partition]
    """They led before, or are deleted."""
    followed: list[tuple[Partition, int]]
    """They follow a leader now, which stands beside them."""
    extended: list[Partition]
    """They have led before; others are to copy them now."""
    left: list[Partition]
    """They follow nobody now."""
    misplaced: list[Partition]
    """The controller believes them in another directory."""
    moving: list[tuple[Partition, LogDirectory, Log]]
    """They were on their way to another directory when the broker ended; and the copies there."""


class ReplicaManager:
    """The partitions of one broker in its log directories."""

    def __init__(
        self,
        node_id: int,
        directories: list[LogDirectory],
        partitions: Partitions,
        purgatory: Purgatory,
        propose: Propose,
        randbytes: Callable[[int], bytes],
        now_ms: Callable[[], int],
        to_loop: Callable[[Callable[[], None]], object],
        lost: Callable[[Sequence[Partition]], None],
        sealed: SealedSegments,
        syncing: Syncing | None = None,
    ) -> None:
        """`lost` is told of partitions that cannot be served any more, all of a directory at once; `to_loop` brings a
        callback from any thread to the loop's; `sealed` flushes what was rolled; `syncing` is there if acknowledgements
        wait for the disk."""
        assert directories, "a broker has at least one log directory"
        self.directories = directories
        self._node_id = node_id
        self._partitions = partitions
        self._purgatory = purgatory
        self._propose = propose
        self._randbytes = randbytes
        self._now_ms = now_ms
        self._to_loop = to_loop
        self._lost = lost
        self._sealed = sealed
        self._syncing = syncing
        self._on_roll = self._rolled
        self._configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        self._config: BrokerConfig | None = None
        self._started = False
        self._high_watermarks: dict[tuple[str, int], int] = {}
        self._preferred: dict[tuple[str, int], LogDirectory] = {}

    @property
    def healthy(self) -> list[LogDirectory]:
        """The directories whose disks have not failed."""
        return [directory for directory in self.directories if not directory.offline]

    def load(self, config: BrokerConfig, overrides_of: Callable[[str], Mapping[str, str]]) -> None:
        """Open every log that is there, before the first delta is applied."""
        self._use(config)
        for directory in self.directories:
            directory.load(lambda topic: self._log_config(overrides_of(topic)))
            self._high_watermarks.update(directory.high_watermarks())

    def unclaimed_high_watermarks(self, directory: LogDirectory) -> dict[tuple[str, int], int]:
        """What was written down last of logs that no topic has claimed yet: in ZooKeeper mode that may take a while."""
        return {key: offset for key, offset in self._high_watermarks.items() if key in directory.logs}

    def apply(self, delta: MetadataDelta, config: BrokerConfig) -> Changes:
        """Bring the partitions in line with the new image."""
        if config is not self._config:
            self._use(config)
            self._reconfigure(delta, self._partitions)
        changes = Changes([], [], [], [], [], [], [])
        for (name, index), action in delta.replica_actions.items():
            self._meet(action, name, index, changes)
        for topic in delta.deleted_topics.values():
            for index in range(len(topic.partitions)):
                partition = self._partitions.get_by_id(topic.id, index)
                if partition is not None:
                    self._delete(partition, changes)
        for topic_id, indexes in delta.partitions.items():
            topic = delta.image.topics_by_id[topic_id]
            for index in indexes:
                self._apply_one(delta, topic, index, changes)
        changed = {resource.name for resource in delta.configs if resource.type == Resource.TOPIC}
        for name in sorted(changed):
            self._reconfigure(delta, self._partitions.of_topic(name))
        if not self._started and delta.complete:
            self._started = True
            self._set_aside_strays()
            self._find_moves(changes)
            self._high_watermarks.clear()
        return changes

    def _apply_one(self, delta: MetadataDelta, topic: TopicImage, index: int, changes: Changes) -> None:
        registration = topic.partitions[index]
        partition = self._partitions.get_by_id(topic.id, index)
        if self._node_id not in registration.replicas:
            if partition is not None:
                self._delete(partition, changes)
            return
        if partition is None:
            assigned = registration.directory(self._node_id)
            partition = self._open(topic, index, self._log_config(delta.image.topic_configs(topic.name)), assigned)
        if delta.image.levels.directories and self._is_misplaced(partition, registration):
            changes.misplaced.append(partition)
        leader = registration.leader
        if leader == self._node_id:
            if partition.error == ErrorCode.KAFKA_STORAGE_ERROR:
                return
            if partition.leader is None or partition.leader_epoch != registration.leader_epoch:
                self._lead(partition, registration)
                changes.left.append(partition)
                changes.elected.append(partition)
            else:
                if partition.leader.replicas != registration.replicas:
                    changes.extended.append(partition)
                partition.changed_within_epoch(
                    registration.replicas, frozenset(registration.isr), registration.partition_epoch
                )
            return
        if partition.leader is not None:
            changes.resigned.append(partition)
        if leader == NO_LEADER:
            partition.resign(registration.leader_epoch)
            changes.left.append(partition)
        elif not partition.follows or partition.leader_epoch != registration.leader_epoch:
            partition.follow(registration.leader_epoch)
            if partition.follows:
                changes.followed.append((partition, leader))

    def _lead(self, partition: Partition, registration: PartitionRegistration) -> None:
        log = partition.log
        partition.become_leader(
            PartitionLeader(
                self._node_id,
                registration.leader_epoch,
                registration.partition_epoch,
                registration.replicas,
                frozenset(registration.isr),
                log.log_end_offset,
                partition.high_watermark,
                self._now_ms(),
                partition.min_insync_replicas,
                None if self._syncing is None else log.recovery_point,
            )
        )
        if self._syncing is not None:
            self._syncing.begin(partition)
        log.leader_epochs.assign(registration.leader_epoch, log.log_end_offset)

    # -- logs ---------------------------------------------------------------------------------------------------------

    def _is_misplaced(self, partition: Partition, registration: PartitionRegistration) -> bool:
        """While it moves, the controller may believe either directory."""
        actual = None if partition.directory is None else id_of(partition.directory)
        known = registration.directory(self._node_id)
        if actual is None or known == actual or partition.error == ErrorCode.KAFKA_STORAGE_ERROR:
            return False
        future = None if known is None or partition.future is None else self._directory_of(known)
        return future is None or (partition.topic, partition.index) not in future.futures

    def _open(self, topic: TopicImage, index: int, config: LogConfig, assigned: Uuid | None) -> Partition:
        """The partition on the log that was found at start, or on a new one; offline when the disk refuses.

        `assigned`: the directory in which the controller believes it."""
        partition = Partition(
            topic.name, topic.id, index, self._purgatory, self._propose, self._met_trouble, self._syncing
        )
        partition.strict = self._config is not None and self._config.strict_validation
        partition.set_min_insync_replicas(config.min_insync_replicas)
        self._partitions.add(partition)
        key = (topic.name, index)
        believed = None if assigned is None else self._directory_of(assigned)
        for directory in sorted(self.healthy, key=lambda each: _reach(each, key, believed), reverse=True):
            log = directory.logs.get(key)
            if log is not None and self._is_log_of(partition, log):
                if partition.served_log is None:
                    self._serve(partition, log, directory)
                else:
                    # A move ended between its two last steps, or one of them failed; or the replica was given to this
                    # broker anew while a disk was away. The other one has all that this one has.
                    self._set_aside(directory, topic.name, index)
                continue
            if partition.served_log is not None:
                continue
            if log is None and not self._started and key in directory.failed:
                partition.take_offline()
                return partition
            # What else has the name belongs to a deleted topic, and must not be served as this one's.
            if (log is not None or key in directory.failed) and not self._set_aside(directory, topic.name, index):
                partition.take_offline()
                return partition
        if partition.served_log is None:
            future = None if believed is None or believed.offline else believed.futures.get(key)
            if believed is not None and future is not None and future.topic_id == partition.topic_id:
                self._serve_copy(partition, believed)
            else:
                self._create(partition, config, believed)
        return partition

    def _serve_copy(self, partition: Partition, directory: LogDirectory) -> None:
        """The disk of the log is away, and the copy there is the one that counts: the controller is told of it when it
        has everything (Kafka's LogManager.recoverAbandonedFutureLogs)."""
        name = f"{partition.topic}-{partition.index}"
        try:
            log = directory.promote_future_log(partition.topic, partition.index)
        except (OSError, CorruptLogError, CorruptRecordError) as error:
            directory.env.reporter.error(
                "a moved partition cannot be opened", partition=name, directory=directory.path, error=str(error)
            )
            if isinstance(error, OSError):
                self.fail(directory)
            partition.take_offline()
        else:
            directory.env.reporter.warning(
                "the copy is the partition now, for the log is gone", partition=name, directory=directory.path
            )
            self._serve(partition, log, directory)

    def _create(self, partition: Partition, config: LogConfig, assigned: LogDirectory | None) -> None:
        """A new log where it is assigned, or somebody wants it, or in the directory that has fewest; when that one's
        disk refuses, in the next."""
        wanted = assigned or self._preferred.pop((partition.topic, partition.index), None)
        for directory in sorted(self.healthy, key=lambda each: (each is not wanted, len(each.logs))):
            try:
                log = directory.create_log(partition.topic, partition.index, partition.topic_id, config)
            except OSError as error:
                directory.env.reporter.error(
                    "a partition's log cannot be created",
                    partition=f"{partition.topic}-{partition.index}",
                    directory=directory.path,
                    error=str(error),
                )
                if not isinstance(error, FileExistsError):  # somebody else's files stand in the way of this one only
                    self.fail(directory)
            else:
                self._serve(partition, log, directory)
                return
        partition.take_offline()

    def _is_log_of(self, partition: Partition, log: Log) -> bool:
        """A log without an id is of an old release; one that no topic claimed at start is nobody's."""
        return log.topic_id == partition.topic_id or (log.topic_id is None and not self._started)

    def _serve(self, partition: Partition, log: Log, directory: LogDirectory) -> None:
        partition.use(log, directory, self._high_watermarks.pop((partition.topic, partition.index), 0))
        self._watch(partition, log)
        if log.has_unflushed_sealed:  # a crash came between
            self._sealed.flush_soon(directory, log)
        if log.topic_id is None:
            try:
                log.assign_topic_id(partition.topic_id)
            except OSError:
                partition.take_offline()

    def _watch(self, partition: Partition, log: Log) -> None:
        """A flush may fail on another thread, while nobody here is using the log."""
        log.on_failure = lambda error: self._to_loop(partition.take_offline)
        log.on_roll = self._on_roll

    def _rolled(self, log: Log) -> None:
        for directory in self.directories:
            if directory.logs.get((log.topic, log.partition)) is log:
                self._sealed.flush_soon(directory, log)

    def checkpoint_recovery(self) -> None:
        """Write down how far the logs are known to be on the disk."""
        self._sealed.checkpoint(self.healthy)

    # -- disks that fail ----------------------------------------------------------------------------------------------

    def _met_trouble(self, partition: Partition) -> None:
        """What is damaged, or could not be opened, is offline alone; a disk that fails has failed for its whole
        directory (Kafka's LogDirFailureChannel)."""
        directory, log = partition.directory, partition.served_log
        if directory is None or log is None or isinstance(log.failure, CorruptLogError | LogOfflineError):
            if directory is None or not directory.offline:
                self._lost([partition])
        else:
            self.fail(directory)

    def fail(self, directory: LogDirectory) -> None:
        """The disk has failed: nothing there is served from now on. Idempotent."""
        if directory.offline:
            return
        directory.go_offline()
        here = [partition for partition in self._partitions if partition.directory is directory]
        directory.env.reporter.error("log directory goes offline", directory=directory.path, partitions=len(here))
        for partition in here:
            partition.take_offline()
        self._lost(here)

    def _meet(self, action: ReplicaAction, topic: str, index: int, changes: Changes) -> None:
        """Also of a log that no topic has claimed since the start."""
        partition = self._partitions.get(topic, index)
        if action is ReplicaAction.STOP:
            if partition is not None:
                changes.left.append(partition)
                changes.resigned.append(partition)
                partition.resign(partition.leader_epoch)
            return
        if partition is not None:
            self._forget(partition, changes)
        for directory in self.healthy:
            if directory.holds(topic, index):
                if action is ReplicaAction.DELETE:
                    self._remove(directory, topic, index)
                else:
                    self._set_aside(directory, topic, index)

    def _forget(self, partition: Partition, changes: Changes) -> None:
        changes.left.append(partition)
        changes.resigned.append(partition)
        partition.resign(partition.leader_epoch, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._partitions.remove(partition)
        for directory in self.healthy:
            if directory.futures.get((partition.topic, partition.index)) is partition.future is not None:
                self.give_up_move(partition, directory)

    def _delete(self, partition: Partition, changes: Changes) -> None:
        self._forget(partition, changes)
        for directory in self.healthy:
            key = (partition.topic, partition.index)
            log = directory.logs.get(key)
            if key in directory.failed or (log is not None and log is partition.served_log):
                self._remove(directory, partition.topic, partition.index)

    def _remove(self, directory: LogDirectory, topic: str, index: int) -> None:
        try:
            directory.delete_log(topic, index, self._unique())
        except OSError as error:
            directory.env.reporter.error(
                "deleted partition cannot be removed", partition=f"{topic}-{index}", error=str(error)
            )

    def _set_aside_strays(self) -> None:
        """Logs that no topic of the cluster claims, found at the first delta: kept under another name, as Kafka."""
        for directory in self.healthy:
            for topic, index in sorted({*directory.logs, *directory.failed}):
                if self._partitions.get(topic, index) is None:
                    directory.env.reporter.warning("setting a stray log aside", partition=f"{topic}-{index}")
                    self._set_aside(directory, topic, index)

    def _set_aside(self, directory: LogDirectory, topic: str, index: int) -> bool:
        """Whether the name is free now."""
        try:
            directory.set_aside_as_stray(topic, index, self._unique())
        except OSError as error:
            directory.env.reporter.error(
                "stray log cannot be set aside: no partition of that name can be served",
                partition=f"{topic}-{index}",
                directory=directory.path,
                error=str(error),
            )
            return False
        return True

    def _directory_of(self, directory_id: Uuid) -> LogDirectory | None:
        return next((each for each in self.directories if id_of(each) == directory_id), None)

    # -- between directories (`replication/moves`) --------------------------------------------------------------------

    def prefer(self, topic: str, index: int, directory: LogDirectory) -> None:
        """Should the partition come to this broker, it is wanted in this directory."""
        self._preferred[topic, index] = directory

    def begin_move(self, partition: Partition, directory: LogDirectory) -> Log:
        """An empty copy there. Raises `OSError`."""
        return directory.create_future_log(
            partition.topic, partition.index, partition.topic_id, partition.log.config, self._unique()
        )

    def give_up_move(self, partition: Partition, directory: LogDirectory) -> None:
        """The copy there is removed."""
        partition.future = None
        directory.delete_future_log(partition.topic, partition.index, self._unique())

    def end_move(self, partition: Partition, directory: LogDirectory) -> None:
        """The copy there has everything: it is the log now, and the old one is removed. Raises what a failing disk
        raises; there is no copy any more then."""
        old, old_directory = partition.log, partition.directory
        assert old_directory is not None
        partition.future = None
        try:
            log = directory.promote_future_log(partition.topic, partition.index)
        except OSError:
            self.fail(directory)
            raise
        if old.leader_epochs.latest > log.leader_epochs.latest:
            # An epoch in which nothing was appended yet.
            log.leader_epochs.assign(old.leader_epochs.latest, log.log_end_offset)
        log.cleaner.checkpoint = old.cleaner.checkpoint
        partition.replace_log(log, directory)
        self._watch(partition, log)
        old_directory.delete_log(partition.topic, partition.index, self._unique())

    def _find_moves(self, changes: Changes) -> None:
        """Copies that were begun before the last end: those go on whose partition is here, in another directory."""
        for directory in self.healthy:
            for (topic, index), future in sorted(directory.futures.items(), key=lambda item: item[0]):
                partition = self._partitions.get(topic, index)
                if (
                    partition is not None
                    and partition.served_log is not None
                    and partition.directory is not directory
                    and future.topic_id == partition.topic_id
                ):
                    changes.moving.append((partition, directory, future))
                else:
                    directory.delete_future_log(topic, index, self._unique())

    # -- settings -----------------------------------------------------------------------------------------------------

    def _use(self, config: BrokerConfig) -> None:
        self._config = config
        self._configs.clear()

    def _reconfigure(self, delta: MetadataDelta, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            config = self._log_config(delta.image.topic_configs(partition.topic))
            partition.set_min_insync_replicas(config.min_insync_replicas)
            for log in (partition.served_log, partition.future):
                if log is not None and log.config != config:
                    log.update_config(config)

    def _log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """Logs of equal settings share one object: a thousand topics cost one."""
        assert self._config is not None
        key = tuple(sorted(overrides.items()))
        config = self._configs.get(key)
        if config is None:
            config = self._configs[key] = self._config.log_config(overrides)
        return config

    def _unique(self) -> str:
        return self._randbytes(16).hex()


def logs_of(partitions: Iterable[Partition]) -> list[Log]:
    """The healthy logs of these partitions."""
    return [log for partition in partitions if (log := partition.served_log) is not None and log.failure is None]


def _reach(directory: LogDirectory, key: tuple[str, int], believed: LogDirectory | None) -> tuple[bool, int, int, bool]:
    """How much a directory's log of that name may have, to compare by; among equals the one that the controller
    believes in comes first. How far one reaches that cannot be opened, nobody knows."""
    log = directory.logs.get(key)
    if log is None:
        return key in directory.failed and believed in (None, directory), -1, -1, False
    return False, log.leader_epochs.latest, log.log_end_offset, directory is believed
