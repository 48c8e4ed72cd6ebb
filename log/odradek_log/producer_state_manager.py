"""The state of the idempotent and transactional producers of a partition (ProducerStateManager, ProducerAppendInfo).

Owns the sequence check, the last five batches of each producer (a retry of one of them is not appended again), ongoing
transactions, expiry, and the format of `.snapshot` files (version 1). Leaves to the log when snapshots are written and
read, to `verification_guard` the verification of transactions, and to `unstable_transactions` the last stable offset.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from odradek_log.log_errors import CorruptLogError
from odradek_log.unstable_transactions import UnstableTransactions
from odradek_log.verification_guard import NOT_REQUIRED, ONGOING, VerificationGuard, VerificationGuards
from odradek_wire.errors import ErrorCode
from odradek_wire.records.attributes import TRANSACTIONAL_BIT
from odradek_wire.records.batch import RecordBatchHeader
from odradek_wire.records.crc import crc32c
from odradek_wire.records.log_validator import Rejection

BATCHES_KEPT = 5
NO_SEQUENCE = -1
_MAX_SEQUENCE = 0x7FFF_FFFF
_MAX_EPOCH = 0x7FFF
_EPOCH_BUMP_VERSION = 2
"""The first transaction version with which the end of a transaction increments the producer epoch (KIP-890)."""

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1


class AppendOrigin(Enum):
    """The origin of a batch: the log checks batches of clients, and trusts coordinators and the metadata log."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    RAFT_LEADER = "raft leader"


class BatchMetadata(NamedTuple):
    """One of the last batches of a producer. `offset_delta` is its last minus its first offset."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & _MAX_SEQUENCE


class TransactionMarker(NamedTuple):
    """The end of a transaction, which the transaction coordinator writes into every partition of the transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    transaction_version: int = 0
    """The level of the feature `transaction.version` when the transaction began."""


class ProducerStateEntry:
    """The state of one producer id. `batches` has its last batches, the newest last."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(self, producer_id: int, producer_epoch: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches: list[BatchMetadata] = []
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.current_txn_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else -1

    def has_ongoing_transaction(self, producer_epoch: int) -> bool:
        """Return whether a transaction with this producer epoch is ongoing. One with an older epoch may have ended at
        its coordinator."""
        return self.current_txn_first_offset is not None and self.producer_epoch == producer_epoch

    def is_duplicate_or_fenced(self, header: RecordBatchHeader) -> bool:
        return header.producer_epoch < self.producer_epoch or self.find_duplicate_batch(header) is not None

    def find_duplicate_batch(self, header: RecordBatchHeader) -> BatchMetadata | None:
        """Return the one of the last batches that `header` repeats."""
        if header.producer_epoch == self.producer_epoch:
            first, last = header.base_sequence, header.last_sequence
            for batch in self.batches:
                if batch.last_sequence == last and batch.first_sequence == first:
                    return batch
        return None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProducerStateEntry):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]  # mutable, compared by value

    def __repr__(self) -> str:
        return "ProducerStateEntry(" + ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__) + ")"


def _out_of_order(header: RecordBatchHeader, newest: int) -> Rejection:
    return Rejection(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"Out of order sequence number for producer {header.producer_id}: {header.base_sequence} (incoming "
        f"sequence number), {newest} (current end sequence number)",
    )


def _fenced_epoch(producer_id: int, producer_epoch: int, entry: ProducerStateEntry) -> Rejection:
    return Rejection(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch of producer {producer_id} is {producer_epoch}, which is smaller than the last seen epoch "
        f"{entry.producer_epoch}",
    )


def _outside_transaction(header: RecordBatchHeader) -> Rejection:
    return Rejection(
        ErrorCode.INVALID_TXN_STATE,
        f"Producer {header.producer_id} sent a non-transactional batch during its ongoing transaction",
    )


class ProducerStateManager:
    """The producers of one partition."""

    __slots__ = ("_entries", "_expiration_ms", "transactions", "verification_guards")

    def __init__(self, expiration_ms: int) -> None:
        self._entries: dict[int, ProducerStateEntry] = {}
        self._expiration_ms = expiration_ms
        self.transactions = UnstableTransactions()
        self.verification_guards = VerificationGuards()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerStateEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerStateEntry | None:
        return self._entries.get(producer_id)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, adds_partition: bool, now_ms: int
    ) -> VerificationGuard | Rejection:
        """Return the guard for a transactional batch that the coordinator has to verify first. ONGOING if the
        transaction is ongoing in this partition already; a rejection if the batch cannot be appended anyway.
        `adds_partition` as in `VerificationGuard`."""
        entry = self._entries.get(producer_id)
        if entry is not None:
            if producer_epoch < entry.producer_epoch:
                return _fenced_epoch(producer_id, producer_epoch, entry)
            if entry.has_ongoing_transaction(producer_epoch):
                return ONGOING
        return self.verification_guards.begin(
            producer_id, producer_epoch, sequence, adds_partition=adds_partition, now_ms=now_ms
        )

    def check(
        self, header: RecordBatchHeader, guard: VerificationGuard | None = NOT_REQUIRED
    ) -> Rejection | BatchMetadata | None:
        """Check a batch of a client. Return None if it is the next of its producer, the earlier batch if it is a
        duplicate, or a rejection. A batch that begins a transaction needs the producer's current `guard`; None rejects
        every transactional batch."""
        entry = self._entries.get(header.producer_id)
        transactional = header.attributes & TRANSACTIONAL_BIT
        if transactional or self.verification_guards.by_producer:
            rejection = self._check_verification(header, entry, guard)
            if rejection is not None:
                return rejection
        if entry is None:
            # The state of the producer may have expired: accept any first sequence.
            return None
        if entry.current_txn_first_offset is None or transactional:
            return self._check_sequence(header, entry)
        return self._check_sequence(header, entry) or _outside_transaction(header)

    def check_coordinator_batch(
        self, header: RecordBatchHeader, guard: VerificationGuard | None = NOT_REQUIRED
    ) -> Rejection | None:
        """Like `check`, for a batch that a group coordinator writes for a transaction, without a check of its
        sequence."""
        entry = self._entries.get(header.producer_id)
        if entry is not None and header.producer_epoch < entry.producer_epoch:
            return _fenced_epoch(header.producer_id, header.producer_epoch, entry)
        return self._check_transaction_begin(header, entry, guard)

    def _check_transaction_begin(
        self, header: RecordBatchHeader, entry: ProducerStateEntry | None, guard: VerificationGuard | None
    ) -> Rejection | None:
        if not header.attributes & TRANSACTIONAL_BIT or guard is NOT_REQUIRED:
            return None
        if guard is not None and (
            (entry is not None and entry.has_ongoing_transaction(header.producer_epoch))
            or guard is self.verification_guards.by_producer.get(header.producer_id)
        ):
            return None
        return Rejection(
            ErrorCode.INVALID_TXN_STATE,
            f"Batch of producer {header.producer_id} belongs to no verified transaction of this partition",
        )

    def _check_verification(
        self, header: RecordBatchHeader, entry: ProducerStateEntry | None, guard: VerificationGuard | None
    ) -> Rejection | None:
        """Check the guard of a batch. Accept duplicates and fenced epochs here: `_check_sequence` returns their
        result."""
        pending = self.verification_guards.by_producer.get(header.producer_id)
        if pending is None and not header.attributes & TRANSACTIONAL_BIT:
            return None
        if guard is not None and entry is not None and entry.is_duplicate_or_fenced(header):
            return None
        rejection = self._check_transaction_begin(header, entry, guard)
        if rejection is not None or pending is None:
            return rejection
        lowest = 0 if pending.adds_partition and (entry is None or not entry.batches) else pending.lowest_sequence
        return _out_of_order(header, lowest - 1) if header.base_sequence > lowest else None

    @staticmethod
    def _check_sequence(header: RecordBatchHeader, entry: ProducerStateEntry) -> Rejection | BatchMetadata | None:
        epoch = header.producer_epoch
        sequence = header.base_sequence
        if epoch == entry.producer_epoch:
            batches = entry.batches
            if not batches:
                return None if sequence == 0 else _out_of_order(header, NO_SEQUENCE)
            newest = batches[-1].last_sequence
            if sequence == newest + 1 or (sequence == 0 and newest == _MAX_SEQUENCE):
                return None
            return entry.find_duplicate_batch(header) or _out_of_order(header, newest)
        if epoch < entry.producer_epoch:
            return _fenced_epoch(header.producer_id, epoch, entry)
        if sequence != 0 and entry.producer_epoch != -1:
            return Rejection(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Invalid sequence number for new epoch of producer {header.producer_id}: {epoch} (request epoch), "
                f"{sequence} (sequence number), {entry.producer_epoch} (current epoch)",
            )
        return None

    def check_marker(self, marker: TransactionMarker) -> Rejection | None:
        """Return None if this marker may end the transaction of its producer, or a rejection."""
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            return None
        epoch, current = marker.producer_epoch, entry.producer_epoch
        late = epoch < current
        if epoch == current and marker.transaction_version >= _EPOCH_BUMP_VERSION:
            # A marker has the epoch after that of its transaction, except at the highest epoch, which has none after
            # it. So this marker ends the transaction before the ongoing one; without an ongoing one, the coordinator
            # repeats the marker after a lost response.
            late = entry.current_txn_first_offset is not None and epoch != _MAX_EPOCH
        if late:
            return Rejection(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"The marker's epoch {epoch} of producer {marker.producer_id} is too old: the last seen epoch is "
                f"{current}, the transaction version {marker.transaction_version}",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            return Rejection(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"The marker for producer {marker.producer_id} has coordinator epoch {marker.coordinator_epoch}, "
                f"at least {entry.coordinator_epoch} expected",
            )
        return None

    def update(self, header: RecordBatchHeader, first_offset: int) -> None:
        """Update the state with a data batch that is in the log from `first_offset` on."""
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerStateEntry(header.producer_id, header.producer_epoch)
        batches = entry.batches
        if header.producer_epoch != entry.producer_epoch:
            entry.producer_epoch = header.producer_epoch
            batches.clear()
        elif len(batches) == BATCHES_KEPT:
            del batches[0]
        delta = header.last_offset_delta
        batches.append(BatchMetadata(header.last_sequence, first_offset + delta, delta, header.max_timestamp))
        entry.last_timestamp = header.max_timestamp
        if header.attributes & TRANSACTIONAL_BIT:
            if self.verification_guards.by_producer:
                self.verification_guards.on_batch_appended(header)
            if entry.current_txn_first_offset is None:
                entry.current_txn_first_offset = first_offset
                self.transactions.begin(first_offset)

    def end_transaction(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, timestamp: int, offset: int
    ) -> int | None:
        """Update the state with a marker at `offset`; return the first offset of the transaction that it ends, None if
        the transaction has no record in this partition."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerStateEntry(producer_id, producer_epoch)
        if producer_epoch != entry.producer_epoch:
            entry.producer_epoch = producer_epoch
            entry.batches.clear()
        first_offset, entry.current_txn_first_offset = entry.current_txn_first_offset, None
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        if first_offset is not None:
            self.transactions.complete(first_offset, offset)
        return first_offset

    def remove_expired(self, now_ms: int) -> None:
        """Remove the guards, and the producers without an ongoing transaction, that are older than
        `producer.id.expiration.ms`."""
        if self.verification_guards.by_producer:
            self.verification_guards.remove_expired(now_ms, self._expiration_ms)
        for entry in list(self._entries.values()):
            if entry.current_txn_first_offset is None and entry.last_timestamp + self._expiration_ms <= now_ms:
                del self._entries[entry.producer_id]

    def clear(self) -> None:
        self._entries.clear()
        self.transactions.clear()

    def encode(self) -> bytes:
        """Return the content of a `.snapshot` file. Like Kafka's, it has only the newest batch of each producer."""
        parts = [_COUNT.pack(len(self._entries))]
        for entry in self:
            newest = entry.batches[-1] if entry.batches else BatchMetadata(NO_SEQUENCE, -1, 0, -1)
            first_offset = entry.current_txn_first_offset
            parts.append(
                _ENTRY.pack(
                    entry.producer_id,
                    entry.producer_epoch,
                    newest.last_sequence,
                    newest.last_offset,
                    newest.offset_delta,
                    entry.last_timestamp,
                    entry.coordinator_epoch,
                    -1 if first_offset is None else first_offset,
                )
            )
        body = b"".join(parts)
        return _HEAD.pack(_VERSION, crc32c(body)) + body

    def load(self, data: bytes, path: str, now_ms: int) -> None:
        """Load the producers of a snapshot, except expired ones. Raises CorruptLogError."""
        try:
            version, crc = _HEAD.unpack_from(data)
            body = data[_HEAD.size :]
            if version != _VERSION or crc != crc32c(body):
                raise CorruptLogError(f"{path}: producer snapshot has version {version} or a wrong checksum")
            (count,) = _COUNT.unpack_from(body)
            rows = list(_ENTRY.iter_unpack(body[_COUNT.size :]))
        except struct.error:
            raise CorruptLogError(f"{path}: producer snapshot is truncated") from None
        if len(rows) != count:
            raise CorruptLogError(f"{path}: producer snapshot has {len(rows)} producers, expected {count}")
        for producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, first_offset in rows:
            entry = ProducerStateEntry(producer_id, epoch)
            entry.last_timestamp = timestamp
            entry.coordinator_epoch = coordinator_epoch
            entry.current_txn_first_offset = first_offset if first_offset >= 0 else None
            if offset >= 0:
                entry.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
            self._entries[producer_id] = entry
        for first_offset in sorted(row[-1] for row in rows if row[-1] >= 0):
            self.transactions.begin(first_offset)
        self.remove_expired(now_ms)
