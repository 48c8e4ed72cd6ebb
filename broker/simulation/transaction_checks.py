"""What must hold of transactions: told of each by whoever began it, and in the end shown what readers of committed
records get.

Whatever was aborted, or never was to be committed, nobody sees, and what was committed is there as a whole. Nobody
commits anything any more with a transactional id that somebody else has begun with since.

A transactor takes numbers one after the other, as if it read them from somewhere, writes each to some partition, and
commits with the same transaction how far it has come: so each number is there once, up to the committed offset, and in
order. What must hold of a bank is in `bank_checks`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import NoReturn

from simulation.checks import Violation

Place = tuple[str, int]


class Outcome(Enum):
    COMMITTED = "committed"
    PERHAPS = "perhaps committed"
    ABORTED = "aborted, or never to be committed"


class TransactionChecks:
    """`failed` is called with the first violation. Values are `name:what#transaction`, those of transactors
    `name:number#transaction`; of all of them the transaction is `name#transaction`."""

    def __init__(self, failed: Callable[[Violation], None]) -> None:
        self._failed = failed
        self._outcomes: dict[bytes, Outcome] = {}
        """By name and transaction."""
        self._written: dict[bytes, set[bytes]] = defaultdict(set)
        self._read: dict[Place, dict[int, bytes]] = defaultdict(dict)
        self.committed: dict[bytes, int] = defaultdict(int)
        """By name: how far it was told that its offsets are."""
        self._newest: dict[tuple[str, int], int] = {}
        """By transactional id and producer id: the last epoch that anybody began with."""
        self._too_late: set[bytes] = set()
        """Transactions whose end was asked for by who was fenced."""

    def fail(self, rule: str) -> NoReturn:
        violation = Violation(rule)
        self._failed(violation)
        raise violation

    # -- transactors --------------------------------------------------------------------------------------------------

    def writing(self, transaction: bytes, values: Iterable[bytes]) -> None:
        """Until it is to be committed nobody sees them."""
        self._outcomes.setdefault(transaction, Outcome.ABORTED)
        self._written[transaction].update(values)

    def begun(self, transactional_id: str, producer: tuple[int, int]) -> None:
        """InitProducerId was answered this producer id and epoch."""
        producer_id, epoch = producer
        newest = self._newest.get((transactional_id, producer_id), -1)
        if epoch == newest:
            self.fail(f"two began with {transactional_id} as {producer}")
        self._newest[transactional_id, producer_id] = max(newest, epoch)

    def is_fenced(self, transactional_id: str, producer: tuple[int, int]) -> bool:
        """Whether somebody else has begun since."""
        producer_id, epoch = producer
        return epoch < self._newest.get((transactional_id, producer_id), -1)

    def ending(self, transaction: bytes, transactional_id: str, producer: tuple[int, int], *, commit: bool) -> None:
        """EndTxn is asked for. Of who is fenced it has no effect, and no answer but an error."""
        if self.is_fenced(transactional_id, producer):
            self._too_late.add(transaction)
        elif commit:
            self._outcomes[transaction] = Outcome.PERHAPS

    @property
    def ended_too_late(self) -> int:
        return len(self._too_late)

    def ended(self, transaction: bytes, *, commit: bool) -> None:
        """It was answered without an error."""
        if transaction in self._too_late:
            self.fail(f"{transaction!r} was ended by who was fenced before")
        if commit:
            self._outcomes[transaction] = Outcome.COMMITTED

    def came_to(self, name: bytes, offset: int) -> None:
        """With what it has just committed the transactor has come to `offset`."""
        self.committed[name] = max(self.committed[name], offset)

    def position_told(self, name: bytes, offset: int) -> None:
        """A transactor that begins anew is told how far it had come."""
        if offset < self.committed[name]:
            self.fail(f"{name!r} had committed {self.committed[name]}, and is told {offset}")
        self.committed[name] = offset

    # -- readers of committed records ---------------------------------------------------------------------------------

    def read(self, place: Place, offset: int, value: bytes) -> None:
        transaction = value.partition(b":")[0] + b"#" + value.rpartition(b"#")[2]
        if self._outcomes.get(transaction) is Outcome.ABORTED:
            self.fail(f"{value!r} is read at {offset} of {place}, and was aborted, or is not to be committed yet")
        self._read[place][offset] = value

    # -- the end ------------------------------------------------------------------------------------------------------

    def final(self, logs: Mapping[Place, Mapping[int, bytes]]) -> None:
        """All committed records, by offset."""
        for place, log in logs.items():
            for offset, value in self._read[place].items():
                if log.get(offset) != value:
                    self.fail(f"{value!r} was read at {offset} of {place}, {log.get(offset)!r} is there")
        seen = Counter(value for log in logs.values() for value in log.values())
        for transaction, values in self._written.items():
            there = {value for value in values if seen[value]}
            outcome = self._outcomes[transaction]
            if outcome is Outcome.COMMITTED and there != values:
                self.fail(f"{transaction!r} was committed, and lacks {sorted(values - there)[:3]}")
            if outcome is Outcome.ABORTED and there:
                self.fail(f"{transaction!r} was not committed, and {sorted(there)[:3]} is there")
            if there and there != values:
                self.fail(
                    f"{transaction!r} is there in part: {sorted(there)[:3]}, and not {sorted(values - there)[:3]}"
                )
        for name, end in self.committed.items():
            self._each_once(name, end, logs)

    def _each_once(self, name: bytes, end: int, logs: Mapping[Place, Mapping[int, bytes]]) -> None:
        found: Counter[int] = Counter()
        for place, log in logs.items():
            last = -1
            for offset in sorted(log):
                whose, _, number = log[offset].partition(b"#")[0].rpartition(b":")
                if whose == name:
                    found[int(number)] += 1
                    if int(number) < last:
                        self.fail(f"{log[offset]!r} at {offset} of {place} stands behind {last}")
                    last = int(number)
        for each in range(max([end, *(largest + 1 for largest in found)])):
            if found[each] != (1 if each < end else 0):
                self.fail(f"{name!r} has committed {end}; number {each} is there {found[each]} times")
