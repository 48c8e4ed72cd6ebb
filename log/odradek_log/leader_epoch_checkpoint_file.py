"""The file `leader-epoch-checkpoint`: when it is written, and when it is forced to the disk."""

from __future__ import annotations

from odradek_log.file_names import LEADER_EPOCH_CHECKPOINT
from odradek_log.leader_epoch_cache import LeaderEpochCache
from odradek_log.log_environment import LogEnvironment


class LeaderEpochCheckpointFile:
    """The leader epochs of one partition and their file. Writes without a sync, because recovery finds the epochs in
    the batches too; `sync` runs with the next flush of the log."""

    __slots__ = ("_env", "_unsynced", "directory", "epochs")

    def __init__(self, env: LogEnvironment, directory: str, epochs: LeaderEpochCache) -> None:
        self._env = env
        self.directory = directory
        self.epochs = epochs
        self._unsynced = False

    def begin(self, epoch: int, start_offset: int) -> None:
        """Assign an epoch before its first batch is appended, and write the file if it lacks an epoch."""
        self.epochs.assign(epoch, start_offset)
        self.write_if_dirty()

    def write_if_dirty(self) -> None:
        if self.epochs.dirty:
            self.write()

    def write(self) -> None:
        self._env.disk.replace_file(self._path, self.epochs.encode(), sync=False)
        self.epochs.dirty = False
        self._unsynced = True

    def sync(self) -> None:
        """Force the file to the disk. Any thread, one at a time."""
        if self._unsynced:
            self._unsynced = False
            self._env.disk.sync_file(self._path)

    @property
    def _path(self) -> str:
        return f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}"
