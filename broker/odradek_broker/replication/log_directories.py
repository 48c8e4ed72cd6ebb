"""The log directories of one broker: which are online, and the failure of a disk.

A disk that fails takes its whole directory offline with all replicas in it (Kafka's LogDirFailureChannel); replicas in
the other directories are served as before. Leaves opening logs to `replica_logs`, files to `odradek_log.directory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek_broker.metadata.directory_identity import directory_id_of
from odradek_broker.replication.hosted_partitions import Partitions
from odradek_broker.replication.partition import Partition
from odradek_log.directory import LogDirectory
from odradek_log.log_errors import CorruptLogError, LogOfflineError
from odradek_wire.uuid import Uuid


class LogDirectories:
    """The log directories of one broker; `all` includes those that are offline."""

    def __init__(
        self,
        directories: list[LogDirectory],
        partitions: Partitions,
        *,
        replicas_lost: Callable[[Sequence[Partition]], None],
    ) -> None:
        """`replicas_lost` is called with the partitions that went offline, those of one directory together."""
        assert directories, "a broker has at least one log directory"
        self.all = directories
        self._partitions = partitions
        self._replicas_lost = replicas_lost

    @property
    def online(self) -> list[LogDirectory]:
        """The directories whose disks have not failed."""
        return [directory for directory in self.all if not directory.offline]

    def by_id(self, directory_id: Uuid) -> LogDirectory | None:
        """Return the directory with this id, also if it is offline."""
        return next((each for each in self.all if directory_id_of(each) == directory_id), None)

    def handle_failure(self, directory: LogDirectory) -> None:
        """Take the directory and its replicas offline because its disk has failed. Idempotent."""
        if directory.offline:
            return
        directory.go_offline()
        hosted = [partition for partition in self._partitions if partition.directory is directory]
        directory.env.reporter.error("log directory goes offline", directory=directory.path, partitions=len(hosted))
        for partition in hosted:
            partition.take_offline()
        self._replicas_lost(hosted)

    def handle_offline_partition(self, partition: Partition) -> None:
        """Take the partition's directory offline too, unless only this log is damaged or could not be opened."""
        directory, log = partition.directory, partition.served_log
        if directory is None or log is None or isinstance(log.offline_cause, CorruptLogError | LogOfflineError):
            if directory is None or not directory.offline:
                self._replicas_lost([partition])
        else:
            self.handle_failure(directory)
