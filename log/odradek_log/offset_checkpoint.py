"""An offset checkpoint that two threads share: the event loop sets its content, another thread writes the file.

The file gets the newest content even if several threads write, and is not written again without a change. `checkpoints`
has the format of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from odradek_log import checkpoints
from odradek_log.checkpoints import TopicPartition
from odradek_log.log_environment import LogEnvironment
from odradek_log.log_errors import CorruptLogError


class OffsetCheckpoint:
    """One checkpoint file of a log directory.

    A checkpoint only saves work at the next start: an error is logged and does not affect the partitions, because a
    full disk must not stop readers.
    """

    __slots__ = ("_env", "_one_writer", "_prepared", "_written", "path")

    def __init__(self, env: LogEnvironment, path: str) -> None:
        self._env = env
        self.path = path
        self._one_writer = Lock()
        self._prepared: Mapping[TopicPartition, int] | None = None
        self._written: Mapping[TopicPartition, int] | None = None

    def read(self) -> dict[TopicPartition, int]:
        """Read the file; return no offsets if it is missing or damaged."""
        try:
            found = checkpoints.read_offsets(self._env.disk, self.path)
        except CorruptLogError as error:
            # Like Kafka: without the checkpoint, the next start reads more.
            self._env.reporter.error("ignoring a damaged checkpoint", error=str(error))
            return {}
        if found:
            self._written = found
        return found

    def prepare(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Set what the next `write` writes; return whether the file has other content. The caller must not change the
        mapping."""
        self._prepared = offsets
        return offsets != self._written

    def has_offset_of(self, partition: TopicPartition) -> bool:
        """Return whether the file, or the prepared content, has an offset of the partition."""
        return any(offsets is not None and partition in offsets for offsets in (self._prepared, self._written))

    @property
    def is_known(self) -> bool:
        """Whether the file has entries, or content was prepared."""
        return self._prepared is not None or self._written is not None

    def write(self) -> bool:
        """Replace the file if its content differs from the prepared one. Any thread. Return False after a disk error,
        which is logged; the file is unchanged then."""
        with self._one_writer:
            offsets = self._prepared
            if offsets is None or offsets == self._written:
                return True
            try:
                checkpoints.write_offsets(self._env.disk, self.path, offsets)
            except OSError as error:
                self._env.reporter.error("failed to write a checkpoint", file=self.path, error=str(error))
                return False
            self._written = offsets
            return True
