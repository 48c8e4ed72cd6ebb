"""A new segment that the cleaner writes beside the old ones, with the suffix `.cleaned`.

Owns its files until they are complete and on the disk; `segment_replacement` renames them. Any thread, one at a time,
because it uses nothing of the log.
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
    """A segment under construction: append batches, then `finish` or `discard` it."""

    def __init__(self, env: LogEnvironment, directory: str, base_offset: int, config: LogConfig) -> None:
        """Create the log file; overwrite that of an earlier pass. Raises OSError."""
        self._disk = env.disk
        self.segment = LogSegment(
            env, directory, base_offset, size=0, created_ms=0, index_interval=config.index_interval_bytes
        )
        self.segment.reset_indexes()
        self.suffixes = [LOG]
        """The suffixes of the files that exist."""
        self._disk.write_file(self.path(LOG), b"")
        self.file: OpenFile | None = OpenFile(self._disk, self._disk.open(self.path(LOG), CREATE), self)

    def path(self, suffix: str) -> str:
        return self.segment.path(suffix) + CLEANED

    def append(self, parts: list[Buffer], headers: list[RecordBatchHeader]) -> int:
        """Append batches; return their bytes. The headers have sizes and offsets; their positions do not matter."""
        assert self.file is not None
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        write_all(self._disk, self.file.fd, data)
        segment = self.segment
        for header in headers:
            segment.update_indexes(segment.size, header.size_in_bytes, header.last_offset, header.max_timestamp)
            segment.size += header.size_in_bytes
        return len(data)

    def finish(self, aborted: list[AbortedTransaction]) -> None:
        """Write the indexes and force all files to the disk, because a sealed segment must survive a crash."""
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
        """Remove the files, as far as they exist."""
        self.file = None
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            with suppress(OSError):  # the next start removes the others
                self._disk.remove(self.path(suffix))
