"""The log of each replica: found at start, created, deleted, or set aside as a stray.

Owns the choice among the log directories (Kafka's LogManager.getOrCreateLog): which log is served when several
directories have one of the same name, and where a new one is created. An OSError takes the directory offline; the
replica goes to another directory or offline. Leaves the metadata deltas that ask for all this to `replica_manager`, and
logs that move between directories to `future_logs`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek_broker.config import BrokerConfig
from odradek_broker.replication.hosted_partitions import Partitions
from odradek_broker.replication.log_configs import LogConfigs
from odradek_broker.replication.log_directories import LogDirectories
from odradek_broker.replication.partition import Partition
from odradek_broker.replication.sealed_segments import SealedSegments
from odradek_log.directory import LogDirectory
from odradek_log.log import Log
from odradek_log.log_config import LogConfig
from odradek_log.log_errors import CorruptLogError
from odradek_wire.records.record_errors import CorruptRecordError
from odradek_wire.uuid import Uuid


class ReplicaLogs:
    """The logs in the log directories of one broker."""

    def __init__(
        self,
        log_directories: LogDirectories,
        configs: LogConfigs,
        *,
        partitions: Partitions,
        sealed_segments: SealedSegments,
        randbytes: Callable[[int], bytes],
        to_loop: Callable[[Callable[[], None]], object],
    ) -> None:
        """`to_loop` runs a callback on the event loop and is safe from any thread; `randbytes(n)` returns n random
        bytes."""
        self._log_directories = log_directories
        self._configs = configs
        self._partitions = partitions
        self._sealed_segments = sealed_segments
        self._randbytes = randbytes
        self._to_loop = to_loop
        self._on_roll = self._rolled
        self.started = False
        """Whether the first complete image of the cluster was applied: a log without a topic by then is a stray."""
        self._high_watermarks: dict[tuple[str, int], int] = {}
        self._preferred: dict[tuple[str, int], LogDirectory] = {}

    def load(self, config: BrokerConfig, overrides_of: Callable[[str], Mapping[str, str]]) -> None:
        """Open every log in the directories, before the first delta is applied. `overrides_of` returns the settings of
        a topic."""
        self._configs.use(config)
        for directory in self._log_directories.all:
            directory.load(lambda topic: self._configs.of(overrides_of(topic)))
            self._high_watermarks.update(directory.high_watermarks())

    def finish_start(self) -> None:
        """Set the logs aside that no topic of the cluster claims (strays); logs opened from now on are new."""
        self.started = True
        for directory in self._log_directories.online:
            for topic, index in sorted({*directory.logs, *directory.failed}):
                if self._partitions.get(topic, index) is None:
                    directory.env.reporter.warning("renaming a stray log", partition=f"{topic}-{index}")
                    self._set_aside(directory, topic, index)
        self._high_watermarks.clear()

    def unclaimed_high_watermarks(self, directory: LogDirectory) -> dict[tuple[str, int], int]:
        """Return the checkpointed high watermarks of logs that no topic has claimed yet. In ZooKeeper mode a broker may
        write the next checkpoint before LeaderAndIsr names them."""
        return {key: offset for key, offset in self._high_watermarks.items() if key in directory.logs}

    def prefer_directory(self, topic: str, index: int, directory: LogDirectory) -> None:
        """Create the log in this directory if this broker gets the replica (LogManager.maybeUpdatePreferredLogDir)."""
        self._preferred[topic, index] = directory

    # -- opening ------------------------------------------------------------------------------------------------------

    def open(self, partition: Partition, config: LogConfig, assigned: Uuid | None) -> None:
        """Give the partition the log that was found at start, or a new one. If no disk can open or create the log, take
        the partition offline.

        `assigned` is the id of the directory to which the controller assigned the replica."""
        key = (partition.topic, partition.index)
        expected = None if assigned is None else self._log_directories.by_id(assigned)
        online = self._log_directories.online
        for directory in sorted(online, key=lambda each: _completeness(each, key, expected), reverse=True):
            log = directory.logs.get(key)
            if log is not None and self._is_log_of(partition, log):
                if partition.served_log is None:
                    self._serve(partition, log, directory)
                else:
                    # The broker stopped, or an error occurred, between the last two steps of a move; or the broker got
                    # the replica again while a disk was missing. The served log has all records of this one.
                    self._set_aside(directory, *key)
                continue
            if partition.served_log is not None:
                continue
            if log is None and not self.started and key in directory.failed:
                partition.take_offline()
                return
            # Any other log of this name belongs to a deleted topic and must not be served.
            if (log is not None or key in directory.failed) and not self._set_aside(directory, *key):
                partition.take_offline()
                return
        if partition.served_log is None:
            future = None if expected is None or expected.offline else expected.futures.get(key)
            if expected is not None and future is not None and future.topic_id == partition.topic_id:
                self._recover_abandoned_future_log(partition, expected)
            else:
                self._create(partition, config, expected)

    def _is_log_of(self, partition: Partition, log: Log) -> bool:
        """Return whether this is a log of the partition's topic. A log of an old release has no topic id; after the
        start such a log belongs to no topic."""
        return log.topic_id == partition.topic_id or (log.topic_id is None and not self.started)

    def _recover_abandoned_future_log(self, partition: Partition, directory: LogDirectory) -> None:
        """Promote the future log in the assigned directory, because the disk of the current log is missing. The future
        log had caught up: before that the controller does not assign its directory (Kafka's
        LogManager.recoverAbandonedFutureLogs)."""
        name = f"{partition.topic}-{partition.index}"
        try:
            log = directory.promote_future_log(partition.topic, partition.index)
        except (OSError, CorruptLogError, CorruptRecordError) as error:
            directory.env.reporter.error(
                "future log cannot be opened", partition=name, directory=directory.path, error=str(error)
            )
            if isinstance(error, OSError):
                self._log_directories.handle_failure(directory)
            partition.take_offline()
        else:
            directory.env.reporter.warning(
                "promoted the future log: the current log is missing", partition=name, directory=directory.path
            )
            self._serve(partition, log, directory)

    def _create(self, partition: Partition, config: LogConfig, assigned: LogDirectory | None) -> None:
        """Create a log in the assigned or preferred directory, else in the one with the fewest logs; if that
        fails, in the next."""
        preferred = assigned or self._preferred.pop((partition.topic, partition.index), None)
        online = self._log_directories.online
        for directory in sorted(online, key=lambda each: (each is not preferred, len(each.logs))):
            try:
                log = directory.create_log(partition.topic, partition.index, partition.topic_id, config)
            except OSError as error:
                directory.env.reporter.error(
                    "log cannot be created",
                    partition=f"{partition.topic}-{partition.index}",
                    directory=directory.path,
                    error=str(error),
                )
                if not isinstance(error, FileExistsError):  # foreign files of the same name: the disk is healthy
                    self._log_directories.handle_failure(directory)
            else:
                self._serve(partition, log, directory)
                return
        partition.take_offline()

    def _serve(self, partition: Partition, log: Log, directory: LogDirectory) -> None:
        partition.serve(log, directory, self._high_watermarks.pop((partition.topic, partition.index), 0))
        self.attach_callbacks(partition, log)
        if log.has_unflushed_sealed:  # the broker crashed before the flush
            self._sealed_segments.flush_soon(directory, log)
        if log.topic_id is None:
            try:
                log.assign_topic_id(partition.topic_id)
            except OSError:
                partition.take_offline()

    def attach_callbacks(self, partition: Partition, log: Log) -> None:
        """Take the partition offline when a flush on another thread fails, and flush segments that the log rolls."""
        log.on_failure = lambda error: self._to_loop(partition.take_offline)
        log.on_roll = self._on_roll

    def _rolled(self, log: Log) -> None:
        for directory in self._log_directories.all:
            if directory.logs.get((log.topic, log.partition)) is log:
                self._sealed_segments.flush_soon(directory, log)

    # -- removing -----------------------------------------------------------------------------------------------------

    def delete_log_of(self, partition: Partition) -> None:
        """Delete the partition's log, also one that could not be opened."""
        key = (partition.topic, partition.index)
        for directory in self._log_directories.online:
            log = directory.logs.get(key)
            if key in directory.failed or (log is not None and log is partition.served_log):
                self._delete(directory, *key)

    def delete_all_named(self, topic: str, index: int) -> None:
        """Delete every log of this name."""
        for directory in self._log_directories.online:
            if directory.has_log(topic, index):
                self._delete(directory, topic, index)

    def set_aside_all_named(self, topic: str, index: int) -> None:
        """Set every log of this name aside as a stray."""
        for directory in self._log_directories.online:
            if directory.has_log(topic, index):
                self._set_aside(directory, topic, index)

    def _delete(self, directory: LogDirectory, topic: str, index: int) -> None:
        try:
            directory.delete_log(topic, index, self.unique_suffix())
        except OSError as error:
            directory.env.reporter.error(
                "log of a deleted partition cannot be removed", partition=f"{topic}-{index}", error=str(error)
            )

    def _set_aside(self, directory: LogDirectory, topic: str, index: int) -> bool:
        """Rename the log as Kafka does with strays; return whether its name is free now. If not, no partition of that
        name can be served from the directory."""
        try:
            directory.set_aside_as_stray(topic, index, self.unique_suffix())
        except OSError as error:
            directory.env.reporter.error(
                "stray log cannot be renamed",
                partition=f"{topic}-{index}",
                directory=directory.path,
                error=str(error),
            )
            return False
        return True

    def unique_suffix(self) -> str:
        """Return a unique part for the directory name of a deleted log, a stray or a future log."""
        return self._randbytes(16).hex()


def _completeness(
    directory: LogDirectory, key: tuple[str, int], expected: LogDirectory | None
) -> tuple[bool, int, int, bool]:
    """Order directories by the last epoch and the end of their log of that name; among equals the assigned directory
    comes first. A log that cannot be opened may have the most records, so that it comes before all others, unless the
    controller assigned another directory."""
    log = directory.logs.get(key)
    if log is None:
        return key in directory.failed and expected in (None, directory), -1, -1, False
    return False, log.leader_epochs.latest, log.log_end_offset, directory is expected
