"""Future logs: the copies of logs that move from one log directory of this broker to another (AlterReplicaLogDirs).

Owns creating, deleting and promoting a future log, and finding those that the last run of the broker left. Leaves
copying, and when to promote, to `replica_alter_log_dirs_manager`.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek_broker.replication.hosted_partitions import Partitions
from odradek_broker.replication.log_directories import LogDirectories
from odradek_broker.replication.partition import Partition
from odradek_broker.replication.replica_logs import ReplicaLogs
from odradek_log.directory import LogDirectory
from odradek_log.log import Log


class FutureLog(NamedTuple):
    """A future log that the last run of the broker left."""

    partition: Partition
    directory: LogDirectory
    log: Log


class FutureLogs:
    """The future logs of one broker."""

    def __init__(self, log_directories: LogDirectories, replica_logs: ReplicaLogs) -> None:
        self._log_directories = log_directories
        self._replica_logs = replica_logs

    def create(self, partition: Partition, directory: LogDirectory) -> Log:
        """Return a new, empty future log in the directory. Raises `OSError`."""
        return directory.create_future_log(
            partition.topic,
            partition.index,
            partition.topic_id,
            partition.log.config,
            self._replica_logs.unique_suffix(),
        )

    def delete(self, partition: Partition, directory: LogDirectory) -> None:
        """Delete the partition's future log from the directory."""
        partition.future = None
        directory.delete_future_log(partition.topic, partition.index, self._replica_logs.unique_suffix())

    def delete_of(self, partition: Partition) -> None:
        """Delete the partition's future log, if there is one."""
        for directory in self._log_directories.online:
            if directory.futures.get((partition.topic, partition.index)) is partition.future is not None:
                self.delete(partition, directory)

    def promote(self, partition: Partition, directory: LogDirectory) -> None:
        """Make the future log, which has caught up, the current log, and delete the old one (Kafka's
        LogManager.replaceCurrentWithFutureLog). Raises OSError, after which the partition has no future log."""
        old, old_directory = partition.log, partition.directory
        assert old_directory is not None
        partition.future = None
        try:
            log = directory.promote_future_log(partition.topic, partition.index)
        except OSError:
            self._log_directories.handle_failure(directory)
            raise
        if old.leader_epochs.latest > log.leader_epochs.latest:
            # The leader has appended nothing in its epoch yet, so that no copied batch has this epoch.
            log.leader_epochs.assign(old.leader_epochs.latest, log.log_end_offset)
        log.cleaner.checkpoint = old.cleaner.checkpoint
        partition.replace_log(log, directory)
        self._replica_logs.attach_callbacks(partition, log)
        old_directory.delete_log(partition.topic, partition.index, self._replica_logs.unique_suffix())

    def find_at_start(self, partitions: Partitions) -> list[FutureLog]:
        """Return the future logs whose partition is served from another directory, and delete the others."""
        found = []
        for directory in self._log_directories.online:
            for (topic, index), future in sorted(directory.futures.items(), key=lambda item: item[0]):
                partition = partitions.get(topic, index)
                if (
                    partition is not None
                    and partition.served_log is not None
                    and partition.directory is not directory
                    and future.topic_id == partition.topic_id
                ):
                    found.append(FutureLog(partition, directory, future))
                else:
                    directory.delete_future_log(topic, index, self._replica_logs.unique_suffix())
        return found
