"""Find the batches of aborted transactions and the markers that the cleaner can remove (CleanedTransactionMetadata).

The cleaner reads nothing above the last stable offset, so that the transaction indexes have every aborted transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_log.transaction_index import AbortedTransaction
from odradek_wire.records.batch import RecordBatchHeader


class _Aborted:
    __slots__ = ("has_batches", "transaction")

    def __init__(self, transaction: AbortedTransaction) -> None:
        self.transaction = transaction
        self.has_batches = False


class CleanedTransactionMetadata:
    """The state of transactions during one pass, which reads every batch in order."""

    __slots__ = ("_aborted", "_aborted_with_marker", "_committed", "_not_begun")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted` has all aborted transactions with records or their marker in the batches that are read."""
        # Descending, so that the next one to begin is last.
        self._not_begun = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted: dict[int, _Aborted] = {}
        self._committed: set[int] = set()
        self._aborted_with_marker: list[AbortedTransaction] = []

    def on_batch_read(self, header: RecordBatchHeader) -> bool:
        """Return whether a data batch belongs to an aborted transaction, so that its records can be removed."""
        if self._not_begun:
            self._begin(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        aborted.has_batches = True
        return True

    def on_control_batch_read(self, header: RecordBatchHeader, commit: bool | None) -> bool:
        """Return whether a control batch can be removed, because no batch of its transaction is left. `commit` is
        whether its marker commits; None without a marker."""
        self._begin(header.last_offset)
        if commit is None:
            return header.count == 0
        if commit:
            if header.producer_id not in self._committed:
                return True
            self._committed.remove(header.producer_id)
            return False
        aborted = self._aborted.pop(header.producer_id, None)
        if aborted is None or not aborted.has_batches:
            return True
        self._aborted_with_marker.append(aborted.transaction)
        return False

    def take_aborted_with_marker(self) -> list[AbortedTransaction]:
        """Return, and clear, the aborted transactions whose markers stay, for the index of the new segment."""
        kept, self._aborted_with_marker = self._aborted_with_marker, []
        return kept

    def _begin(self, offset: int) -> None:
        coming = self._not_begun
        while coming and coming[-1].first_offset <= offset:
            transaction = coming.pop()
            self._aborted.setdefault(transaction.producer_id, _Aborted(transaction))
