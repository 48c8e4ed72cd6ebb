"""`.txnindex`: the aborted transactions that ended in a segment (TransactionIndex, AbortedTxn version 0).

Owns the entries and their bytes. The file is there only if a transaction was aborted. Once it was read its bytes are
kept, for every fetch of committed records that finds something asks.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from odradek_log.disk import CREATE, Disk, write_all
from odradek_log.file_names import TXN_INDEX
from odradek_log.loaded_indexes import IndexOwner, LoadedIndexes
from odradek_log.log_errors import CorruptLogError

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """From its first record to its marker. `last_stable_offset` is what it was once the marker stood in the log."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        return _ENTRY.pack(_VERSION, *self)


class SegmentFiles(IndexOwner, Protocol):
    """The segment: it knows where its files are, also after its directory was renamed."""

    def path(self, suffix: str, /) -> str: ...


class TransactionIndex:
    """Of one segment. Entries are in the order of the transactions' ends, which is that of the log."""

    __slots__ = ("_data", "_disk", "_loaded", "_owner", "_torn", "_unsynced")

    def __init__(self, disk: Disk, owner: SegmentFiles, loaded: LoadedIndexes) -> None:
        """The file is read when something is first asked; a missing one is an empty one."""
        self._disk = disk
        self._owner = owner
        self._loaded = loaded
        self._data: bytearray | None = None
        """The file's whole entries."""
        self._torn = False
        """Whether a crash has left a part of one behind them."""
        self._unsynced = False

    @property
    def is_empty(self) -> bool:
        return not (self._read() if self._data is None else self._data)

    def unload(self) -> None:
        """Give the memory back."""
        if self._data:
            self._data = None

    def append(self, transaction: AbortedTransaction) -> None:
        """A transaction ended here, and its records are not to be read."""
        data, disk, entry = self._read(), self._disk, transaction.encode()
        fd = disk.open(self._owner.path(TXN_INDEX), CREATE)
        try:
            write_all(disk, fd, entry)
        finally:
            disk.close(fd)
        data += entry
        self._unsynced = True

    def entries(self) -> list[AbortedTransaction]:
        data = self._read()
        return [self._entry(data, at) for at in range(len(data) // _ENTRY.size)]

    def before(self, offset: int) -> list[AbortedTransaction]:
        """Those that ended below `offset`."""
        return self.entries()[: self._first_from(self._read(), offset)]

    def replace(self, transactions: Iterable[AbortedTransaction]) -> None:
        """These are all that ended here. If the file says something else it is written anew, and on the disk when this
        returns; else it may be of a process that was killed before it forced it there, and `sync` is to do that."""
        data = b"".join(transaction.encode() for transaction in transactions)
        if data != self._read() or self._torn:
            self._disk.replace_file(self._owner.path(TXN_INDEX), data)
            self._data = bytearray(data)
            self._torn = False
            self._unsynced = False
        else:
            self._unsynced = bool(data)

    def collect(self, start: int, end: int, into: list[AbortedTransaction]) -> bool:
        """Add those that have records or their marker in [start, end). Whether these are all: else some that begin
        before `end` may have ended in a later segment."""
        data = self._read()
        for at in range(self._first_from(data, start), len(data) // _ENTRY.size):
            transaction = self._entry(data, at)
            if transaction.first_offset < end:
                into.append(transaction)
            if transaction.last_stable_offset >= end:
                return True
        return False

    def sync(self) -> None:
        """Force the file to the disk. Any thread."""
        if self._unsynced:
            self._unsynced = False
            self._disk.sync_file(self._owner.path(TXN_INDEX))

    def _first_from(self, data: bytearray, offset: int) -> int:
        """The number of the first entry that ended at `offset` or later."""
        count = len(data) // _ENTRY.size
        return bisect_left(range(count), offset, key=lambda at: self._entry(data, at).last_offset)

    def _entry(self, data: bytearray, at: int) -> AbortedTransaction:
        version, *fields = _ENTRY.unpack_from(data, at * _ENTRY.size)
        if version != _VERSION:
            raise CorruptLogError(f"{self._owner.path(TXN_INDEX)}: unknown version {version} of an aborted transaction")
        return AbortedTransaction(*fields)

    def _read(self) -> bytearray:
        if self._data is None:
            try:
                found = self._disk.read_file(self._owner.path(TXN_INDEX))
            except FileNotFoundError:
                found = b""
            self._torn = len(found) % _ENTRY.size > 0
            self._data = bytearray(found[: len(found) // _ENTRY.size * _ENTRY.size])
            if self._data:
                self._loaded.add(self._owner, len(self._data))
        return self._data
