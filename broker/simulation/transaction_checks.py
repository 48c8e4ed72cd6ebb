"""The rules for transactions: read_committed consumers see each committed transaction whole and nothing of the others.

Producers report each transaction, and read_committed consumers report what they read. A producer that was fenced by a
later InitProducerId with its transactional id commits nothing.

A `TransactionalCopier` writes consecutive numbers, each to a random partition, and commits its position in the same
transaction. Each number below the committed offset is therefore stored exactly once, and in order. `bank_checks` has
the rules for the bank.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NoReturn

from simulation.checks import Violation

TopicPartition = tuple[str, int]


class Outcome(Enum):
    COMMITTED = "committed"
    UNKNOWN = "committed or aborted"
    ABORTED = "aborted, or EndTxn was not sent"


class TransactionChecks:
    """Calls `on_violation` with each violation, and raises it. A value is `name:content#number`, written in the
    transaction `name#number`; the content of a `TransactionalCopier` is a number."""

    def __init__(self, on_violation: Callable[[Violation], None]) -> None:
        self._on_violation = on_violation
        self._outcomes: dict[bytes, Outcome] = {}
        """The outcomes by transaction."""
        self._written: dict[bytes, set[bytes]] = defaultdict(set)
        self._read: dict[TopicPartition, dict[int, bytes]] = defaultdict(dict)
        self.committed: dict[bytes, int] = defaultdict(int)
        """The last known committed offset by name."""
        self._newest: dict[tuple[str, int], int] = {}
        """The latest producer epoch by transactional id and producer id."""
        self._fenced_ends: set[bytes] = set()
        """Transactions that a fenced producer tried to end."""

    def fail(self, rule: str) -> NoReturn:
        violation = Violation(rule)
        self._on_violation(violation)
        raise violation

    # -- producers ----------------------------------------------------------------------------------------------------

    def writing(self, transaction: bytes, values: Iterable[bytes]) -> None:
        """Record the values of a transaction; a consumer must not see them before the producer commits."""
        self._outcomes.setdefault(transaction, Outcome.ABORTED)
        self._written[transaction].update(values)

    def begun(self, transactional_id: str, producer: tuple[int, int]) -> None:
        """Record the producer id and epoch of a successful InitProducerId response."""
        producer_id, epoch = producer
        newest = self._newest.get((transactional_id, producer_id), -1)
        if epoch == newest:
            self.fail(f"InitProducerId returned {producer} twice for {transactional_id}")
        self._newest[transactional_id, producer_id] = max(newest, epoch)

    def is_fenced(self, transactional_id: str, producer: tuple[int, int]) -> bool:
        """Return whether a later InitProducerId has fenced this producer."""
        producer_id, epoch = producer
        return epoch < self._newest.get((transactional_id, producer_id), -1)

    def ending(self, transaction: bytes, transactional_id: str, producer: tuple[int, int], *, commit: bool) -> None:
        """Record an EndTxn request. From a fenced producer it must have no effect and return an error."""
        if self.is_fenced(transactional_id, producer):
            self._fenced_ends.add(transaction)
        elif commit:
            self._outcomes[transaction] = Outcome.UNKNOWN

    @property
    def fenced_ends(self) -> int:
        return len(self._fenced_ends)

    def ended(self, transaction: bytes, *, commit: bool) -> None:
        """Record a successful EndTxn response."""
        if transaction in self._fenced_ends:
            self.fail(f"{transaction!r} was ended by a fenced producer")
        if commit:
            self._outcomes[transaction] = Outcome.COMMITTED

    def position_committed(self, name: bytes, offset: int) -> None:
        """Record the position that a `TransactionalCopier` has committed."""
        self.committed[name] = max(self.committed[name], offset)

    def position_fetched(self, name: bytes, offset: int) -> None:
        """Record the position that a restarted `TransactionalCopier` has fetched."""
        if offset < self.committed[name]:
            self.fail(f"{name!r} had committed offset {self.committed[name]}, and OffsetFetch returned {offset}")
        self.committed[name] = offset

    # -- readers of committed records ---------------------------------------------------------------------------------

    def read(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        transaction = value.partition(b":")[0] + b"#" + value.rpartition(b"#")[2]
        if self._outcomes.get(transaction) is Outcome.ABORTED:
            self.fail(
                f"{value!r} is read at offset {offset} of {partition}, and its transaction was aborted or is open"
            )
        self._read[partition][offset] = value

    # -- the end ------------------------------------------------------------------------------------------------------

    def final(self, logs: Mapping[TopicPartition, Mapping[int, bytes]]) -> None:
        """Compare all committed records, by offset, with what producers and consumers have reported."""
        for partition, log in logs.items():
            for offset, value in self._read[partition].items():
                if log.get(offset) != value:
                    self.fail(f"{value!r} was read at offset {offset} of {partition}, {log.get(offset)!r} is stored")
        seen = Counter(value for log in logs.values() for value in log.values())
        for transaction, values in self._written.items():
            there = {value for value in values if seen[value]}
            outcome = self._outcomes[transaction]
            if outcome is Outcome.COMMITTED and there != values:
                self.fail(f"{transaction!r} was committed, and lacks {sorted(values - there)[:3]}")
            if outcome is Outcome.ABORTED and there:
                self.fail(f"{transaction!r} was not committed, and {sorted(there)[:3]} is stored")
            if there and there != values:
                self.fail(
                    f"{transaction!r} is stored in part: {sorted(there)[:3]}, and not {sorted(values - there)[:3]}"
                )
        for name, end in self.committed.items():
            self._each_once(name, end, logs)

    def _each_once(self, name: bytes, end: int, logs: Mapping[TopicPartition, Mapping[int, bytes]]) -> None:
        found: Counter[int] = Counter()
        for partition, log in logs.items():
            last = -1
            for offset in sorted(log):
                owner, _, number = log[offset].partition(b"#")[0].rpartition(b":")
                if owner == name:
                    found[int(number)] += 1
                    if int(number) < last:
                        self.fail(f"{log[offset]!r} at offset {offset} of {partition} comes after {last}")
                    last = int(number)
        for each in range(max([end, *(largest + 1 for largest in found)])):
            if found[each] != (1 if each < end else 0):
                self.fail(f"{name!r} has committed offset {end}; number {each} is stored {found[each]} times")
