"""The `.txnindex` of a segment: the aborted transactions whose markers are in it (TransactionIndex, AbortedTxn version
0).

The file exists only if a transaction was aborted. Its bytes stay in memory after the first read, because every
read_committed fetch needs them.
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
    """An aborted transaction. `last_offset` is that of its marker; `last_stable_offset` is the one after the marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    def encode(self) -> bytes:
        return _ENTRY.pack(_VERSION, *self)


class SegmentFiles(IndexOwner, Protocol):
    """The segment, which knows the paths of its files even after a rename of its directory."""

    def path(self, suffix: str, /) -> str: ...


class TransactionIndex:
    """The aborted transactions of one segment, by ascending offset of the marker."""

    __slots__ = ("_data", "_disk", "_loaded", "_owner", "_torn", "_unsynced")

    def __init__(self, disk: Disk, owner: SegmentFiles, loaded: LoadedIndexes) -> None:
        """The first use reads the file; a missing file is an empty one."""
        self._disk = disk
        self._owner = owner
        self._loaded = loaded
        self._data: bytearray | None = None
        """The whole entries of the file; None before the first read."""
        self._torn = False
        """Whether the file ends with a part of an entry, after a crash."""
        self._unsynced = False

    @property
    def is_empty(self) -> bool:
        return not (self._read() if self._data is None else self._data)

    def unload(self) -> None:
        """Free the memory; the next use reads the file again."""
        if self._data:
            self._data = None

    def append(self, transaction: AbortedTransaction) -> None:
        """Append an aborted transaction to the file."""
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
        """Return the transactions whose markers are below `offset`."""
        return self.entries()[: self._first_from(self._read(), offset)]

    def replace(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Set all entries. If the file differs, replace it and force it to the disk. If not, the next `sync` forces it,
        because the process that wrote the file may have been killed before its sync."""
        data = b"".join(transaction.encode() for transaction in transactions)
        if data != self._read() or self._torn:
            self._disk.replace_file(self._owner.path(TXN_INDEX), data)
            self._data = bytearray(data)
            self._torn = False
            self._unsynced = False
        else:
            self._unsynced = bool(data)

    def collect(self, start: int, end: int, into: list[AbortedTransaction]) -> bool:
        """Add the transactions with records or their marker in [start, end) to `into`; return whether the search is
        complete. Otherwise a later segment may have markers of transactions that begin before `end`."""
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
        """Return the number of the first entry whose marker is at or above `offset`."""
        count = len(data) // _ENTRY.size
        return bisect_left(range(count), offset, key=lambda at: self._entry(data, at).last_offset)

    def _entry(self, data: bytearray, at: int) -> AbortedTransaction:
        version, *fields = _ENTRY.unpack_from(data, at * _ENTRY.size)
        if version != _VERSION:
            raise CorruptLogError(
                f"{self._owner.path(TXN_INDEX)}: aborted transaction has version {version}, expected {_VERSION}"
            )
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
