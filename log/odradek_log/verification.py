"""Whether a transaction that begins in this partition is known to its coordinator: questions under way, and answered
ones that have not been used yet (KIP-890; VerificationStateEntry, VerificationGuard).

Before a transaction's first batch stands in a log, the coordinator is asked. The answer is of no use any more once a
marker has ended that transaction: each question is an object of its own, and whoever appends brings the one that was
answered. Leaves asking to the broker.
"""

from __future__ import annotations

from odradek_wire.records.batch import RecordBatchHeader


class Verification:
    """One question, known by its identity. `lowest_sequence` is the lowest of all batches that have asked it."""

    __slots__ = ("adds", "began_ms", "lowest_sequence", "producer_epoch")

    def __init__(self, producer_epoch: int, sequence: int, *, adds: bool, began_ms: int) -> None:
        """`adds`: the coordinator adds the partition to the transaction (transaction version 2)."""
        self.producer_epoch = producer_epoch
        self.lowest_sequence = sequence
        self.adds = adds
        self.began_ms = began_ms


NOT_REQUIRED = Verification(-1, -1, adds=False, began_ms=0)
"""Brought by who need not have asked: a transactional batch is appended all the same."""

ONGOING = Verification(-1, -1, adds=False, began_ms=0)
"""Brought by who found the transaction open: a batch is appended if it still is."""


class Verifications:
    """Of one partition, by producer id."""

    __slots__ = ("open",)

    def __init__(self) -> None:
        self.open: dict[int, Verification] = {}

    def begin(self, producer_id: int, producer_epoch: int, sequence: int, *, adds: bool, now_ms: int) -> Verification:
        """Another batch that is to begin a transaction; those of one producer share a question until one is appended.

        As long as none is, no batch may come before the lowest: one that must be sent again would never fit behind
        it."""
        found = self.open.get(producer_id)
        if found is None:
            found = self.open[producer_id] = Verification(producer_epoch, sequence, adds=adds, began_ms=now_ms)
        elif producer_epoch > found.producer_epoch:
            found.producer_epoch = producer_epoch
            found.lowest_sequence = sequence
        elif producer_epoch == found.producer_epoch and sequence < found.lowest_sequence:
            found.lowest_sequence = sequence
        return found

    def appended(self, header: RecordBatchHeader) -> None:
        """A batch of a transaction, or the marker that ends one, stands in the log."""
        found = self.open.get(header.producer_id)
        if found is None:
            return
        if header.is_control and found.adds and header.producer_epoch == found.producer_epoch:
            # Under version 2 a marker has the epoch of the transaction after the one that it ends.
            return
        del self.open[header.producer_id]

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        for producer_id, each in list(self.open.items()):
            if each.began_ms + expiration_ms <= now_ms:
                del self.open[producer_id]
