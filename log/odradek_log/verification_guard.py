"""Guards against transactions that their coordinator does not know (KIP-890; Kafka's VerificationStateEntry and
VerificationGuard).

Before the first batch of a transaction is appended to a partition, the leader asks the transaction coordinator whether
the partition is part of the transaction. The request gets a guard, and the batch is appended only with the guard that
the log still has for its producer: a marker that is appended in between removes the guard, so that a late response
cannot begin a transaction that has ended. Leaves the request to the broker.
"""

from __future__ import annotations

from odradek_wire.records.batch import RecordBatchHeader


class VerificationGuard:
    """One verification of a producer's transaction, compared by identity."""

    __slots__ = ("adds_partition", "began_ms", "lowest_sequence", "producer_epoch")

    def __init__(self, producer_epoch: int, sequence: int, *, adds_partition: bool, began_ms: int) -> None:
        """`adds_partition`: the coordinator adds the partition to the transaction (transaction version 2)."""
        self.producer_epoch = producer_epoch
        self.lowest_sequence = sequence
        """The lowest first sequence of all batches that wait with this guard."""
        self.adds_partition = adds_partition
        self.began_ms = began_ms


NOT_REQUIRED = VerificationGuard(-1, -1, adds_partition=False, began_ms=0)
"""The guard of a transactional batch that needs no verification."""

ONGOING = VerificationGuard(-1, -1, adds_partition=False, began_ms=0)
"""The guard of a batch of an ongoing transaction; the append checks that the transaction is still ongoing."""


class VerificationGuards:
    """The guards of one partition by producer id."""

    __slots__ = ("by_producer",)

    def __init__(self) -> None:
        self.by_producer: dict[int, VerificationGuard] = {}

    def begin(
        self, producer_id: int, producer_epoch: int, sequence: int, *, adds_partition: bool, now_ms: int
    ) -> VerificationGuard:
        """Return the guard of a batch that is to begin a transaction. The batches of one producer share a guard until
        one of them is appended.

        Until then no batch may be appended before the one with the lowest sequence: the client would send that one
        again, and it would be out of order."""
        guard = self.by_producer.get(producer_id)
        if guard is None:
            guard = self.by_producer[producer_id] = VerificationGuard(
                producer_epoch, sequence, adds_partition=adds_partition, began_ms=now_ms
            )
        elif producer_epoch > guard.producer_epoch:
            guard.producer_epoch = producer_epoch
            guard.lowest_sequence = sequence
        elif producer_epoch == guard.producer_epoch and sequence < guard.lowest_sequence:
            guard.lowest_sequence = sequence
        return guard

    def on_batch_appended(self, header: RecordBatchHeader) -> None:
        """Remove the producer's guard: a batch of its transaction, or the marker that ends one, has been appended."""
        guard = self.by_producer.get(header.producer_id)
        if guard is None:
            return
        if header.is_control and guard.adds_partition and header.producer_epoch == guard.producer_epoch:
            # Under transaction version 2 a marker has the epoch of the next transaction: keep the guard of that one.
            return
        del self.by_producer[header.producer_id]

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        """Remove guards that began `expiration_ms` ago or earlier."""
        for producer_id, guard in list(self.by_producer.items()):
            if guard.began_ms + expiration_ms <= now_ms:
                del self.by_producer[producer_id]
