"""The segment that takes the place of others: written beside them as `.cleaned`, indexes and all.

Owns the files until they are whole and on the disk; `swap` gives them their names. May be used on any thread, one at a
time: nothing of the log that is cleaned is touched.
"""

from __future__ import annotations

from contextlib import suppress

from odradek_log.disk import CREATE, write_all
from odradek_log.file_names import CLEANED, INDEX, LOG, TIME_INDEX, TXN_INDEX
from odradek_log.log_config import LogConfig
from odradek_log.log_environment import LogEnvironment
from odradek_log.log_segment import LogSegment
from odradek_log.open_files import OpenFile
from odradek_log.transaction_index import AbortedTransaction
from odradek_wire.records.batch import Buffer, RecordBatchHeader


class CleanedSegment:
    """Append to it, then `finish`; or `discard` it."""

    def __init__(self, env: LogEnvironment, directory: str, base_offset: int, config: LogConfig) -> None:
        """Raises `OSError`. What an earlier attempt left under the name is overwritten."""
        self._disk = env.disk
        self.segment = LogSegment(
            env, directory, base_offset, size=0, created_ms=0, index_interval=config.index_interval_bytes
        )
        self.segment.reset_indexes()
        self.suffixes = [LOG]
        """Which files there are."""
        self._disk.write_file(self.path(LOG), b"")
        self.file: OpenFile | None = OpenFile(self._disk, self._disk.open(self.path(LOG), CREATE), self)

    def path(self, suffix: str) -> str:
        return self.segment.path(suffix) + CLEANED

    def append(self, parts: list[Buffer], headers: list[RecordBatchHeader]) -> int:
        """Batches one after the other; each header has its size and offsets, whatever position. How many bytes they
        are."""
        assert self.file is not None
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        write_all(self._disk, self.file.fd, data)
        segment = self.segment
        for header in headers:
            segment.update_indexes(segment.size, header.size_in_bytes, header.last_offset, header.max_timestamp)
            segment.size += header.size_in_bytes
        return len(data)

    def finish(self, aborted: list[AbortedTransaction]) -> None:
        """Write the indexes, and wait until everything is on the disk: what takes a sealed segment's place must be
        there after a crash."""
        assert self.file is not None
        disk = self._disk
        disk.sync(self.file.fd)
        self.file = None
        for suffix, content in self.segment.index_files():
            self._write(suffix, content)
        if aborted:
            self._write(TXN_INDEX, b"".join(transaction.encode() for transaction in aborted))

    def _write(self, suffix: str, content: bytes) -> None:
        path = self.path(suffix)
        self._disk.write_file(path, content)
        self.suffixes.append(suffix)
        self._disk.sync_file(path)

    def discard(self) -> None:
        """It is not wanted any more, or somebody else took its folder away."""
        self.file = None
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            with suppress(OSError):  # what stays is removed at the next start
                self._disk.remove(self.path(suffix))
