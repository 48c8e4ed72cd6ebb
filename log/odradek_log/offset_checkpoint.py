"""An offset checkpoint between two threads: the loop says what it is to hold, another one writes it.

Owns that the newest offsets win, in whichever order the writers come, and that nothing is written twice. The file's
text is `checkpoints`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from odradek_log import checkpoints
from odradek_log.checkpoints import TopicPartition
from odradek_log.log_environment import LogEnvironment
from odradek_log.log_errors import CorruptLogError


class OffsetCheckpoint:
    """One file of a log directory.

    Checkpoints only spare work at the next start: one that cannot be written, or read, is reported, and the partitions
    go on. A full disk must not stop those that only read.
    """

    __slots__ = ("_env", "_one_writer", "_prepared", "_written", "path")

    def __init__(self, env: LogEnvironment, path: str) -> None:
        self._env = env
        self.path = path
        self._one_writer = Lock()
        self._prepared: Mapping[TopicPartition, int] | None = None
        self._written: Mapping[TopicPartition, int] | None = None

    def read(self) -> dict[TopicPartition, int]:
        """As last written; a missing or damaged file is an empty one."""
        try:
            found = checkpoints.read_offsets(self._env.disk, self.path)
        except CorruptLogError as error:
            # As Kafka: the checkpoint is a hint; without it more is read.
            self._env.reporter.error("ignoring a damaged checkpoint", error=str(error))
            return {}
        if found:
            self._written = found
        return found

    def prepare(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """What the next `write` writes; the mapping is not changed any more. Whether the file has something else."""
        self._prepared = offsets
        return offsets != self._written

    def names(self, partition: TopicPartition) -> bool:
        """Whether the file has an offset of that partition, or is about to get one."""
        return any(offsets is not None and partition in offsets for offsets in (self._prepared, self._written))

    @property
    def is_known(self) -> bool:
        """Whether the file has entries, or anything was offered for it."""
        return self._prepared is not None or self._written is not None

    def write(self) -> bool:
        """Replace the file, if it has other offsets than were offered last. Any thread. False when the disk fails; the
        old content stays then."""
        with self._one_writer:
            offsets = self._prepared
            if offsets is None or offsets == self._written:
                return True
            try:
                checkpoints.write_offsets(self._env.disk, self.path, offsets)
            except OSError as error:
                self._env.reporter.error("could not write a checkpoint", file=self.path, error=str(error))
                return False
            self._written = offsets
            return True
