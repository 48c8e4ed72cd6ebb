"""A bank whose accounts are records: the content of a transfer, and the rules for its statements.

A transfer moves an amount from one account to another and writes both new balances in one transaction. Its number is
one more than the number of the last transfer that its producer has read. So the balances are consistent after each
transfer in the order of the numbers, whichever partition a reader reads first. If two producers continue from the same
transfer, the same number occurs twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self

ACCOUNTS = 6
OPENING_BALANCE = 100
TOTAL = ACCOUNTS * OPENING_BALANCE


class Statement(NamedTuple):
    """The value of a record: the balance of an account after a transfer, as one attempt at the transfer writes it."""

    bank: str
    transfer: int
    """Counts up from 0, which opens all accounts."""
    attempt: str
    accounts: tuple[int, ...]
    """All accounts of the transfer."""
    account: int
    balance: int

    def __str__(self) -> str:
        accounts = "+".join(map(str, self.accounts))
        return f"{self.bank} {self.transfer} {self.attempt} {accounts} {self.account} {self.balance}"

    @classmethod
    def parse(cls, value: str) -> Self | None:
        """Return the statement, or None for a value that has none, such as a barrier."""
        if value.count(" ") != len(cls._fields) - 1:
            return None
        bank, transfer, attempt, accounts, account, balance = value.split()
        return cls(bank, int(transfer), attempt, tuple(map(int, accounts.split("+"))), int(account), int(balance))


def barrier(bank: str, attempt: str, partition: int) -> str:
    """Return a value without a statement: a consumer that has read it has read all earlier producers' records."""
    return f"{bank} {attempt} {partition}"


@dataclass
class Ledger:
    """The balances of a bank according to the statements read so far."""

    transfer: int = -1
    balances: dict[int, int] = field(default_factory=dict)
    _as_of: dict[int, int] = field(default_factory=dict)

    def read(self, statement: Statement) -> None:
        """Add a statement. The statements of one account arrive in order, those of different accounts in any order."""
        self.transfer = max(self.transfer, statement.transfer)
        if statement.transfer >= self._as_of.get(statement.account, -1):
            self._as_of[statement.account] = statement.transfer
            self.balances[statement.account] = statement.balance

    def opening(self, bank: str, attempt: str) -> list[Statement]:
        return self._transfer(bank, attempt, dict.fromkeys(range(ACCOUNTS), OPENING_BALANCE))

    def transferred(self, bank: str, attempt: str, giver: int, taker: int, amount: int) -> list[Statement]:
        """Return the content of the next transfer."""
        balances = {giver: self.balances[giver] - amount, taker: self.balances[taker] + amount}
        return self._transfer(bank, attempt, balances)

    def _transfer(self, bank: str, attempt: str, balances: Mapping[int, int]) -> list[Statement]:
        accounts = tuple(balances)
        return [Statement(bank, self.transfer + 1, attempt, accounts, *each) for each in balances.items()]


def wrong_sums(statements: Iterable[Statement], *, to_the_end: bool) -> list[str]:
    """Check that each transfer comes from one attempt and keeps the bank's total. A reader that has read `to_the_end`
    must have all transfers; for another reader, the check stops before the first transfer that it has in part only."""
    banks: dict[str, dict[int, list[Statement]]] = defaultdict(lambda: defaultdict(list))
    for each in statements:
        banks[each.bank][each.transfer].append(each)
    return [wrong for bank, transfers in sorted(banks.items()) for wrong in _wrong(bank, transfers, to_the_end)]


def _wrong(bank: str, transfers: Mapping[int, list[Statement]], to_the_end: bool) -> Iterable[str]:
    balances: dict[int, int] = {}
    for number in range(max(transfers) + 1):
        statements = transfers.get(number, [])
        if not to_the_end and not _whole(statements):
            return
        if not statements:
            yield f"{bank}: transfer {number} is missing"
        attempts = sorted({each.attempt for each in statements})
        if len(attempts) > 1:
            yield f"{bank}: transfer {number} was made by {attempts}"
        balances.update((each.account, each.balance) for each in statements)
        if sum(balances.values()) != TOTAL:
            yield f"{bank}: after transfer {number} the accounts hold {sum(balances.values())}, not {TOTAL}"


def _whole(statements: list[Statement]) -> bool:
    """Return whether every attempt at a transfer has a statement for each of its accounts."""
    present = {(each.attempt, each.account) for each in statements}
    return bool(statements) and all(
        (each.attempt, account) in present for each in statements for account in each.accounts
    )
