"""A bank whose accounts are records: the content of a transfer, and the rules for its statements.

A transfer takes from one account and gives to another, and writes both new balances in one transaction; its number is
one more than that of the last one its producer knows of. So the transfers of a bank in the order of their numbers are
its consistent points, in whatever order a reader meets the partitions, and two producers that went on from the same
point betray themselves by a number that is there twice.
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
    """That an account has so much after a transfer, as one attempt at it says: the value of a record."""

    bank: str
    transfer: int
    """Counts up from 0, which opens all accounts."""
    attempt: str
    accounts: tuple[int, ...]
    """All that the transfer is about."""
    account: int
    balance: int

    def __str__(self) -> str:
        accounts = "+".join(map(str, self.accounts))
        return f"{self.bank} {self.transfer} {self.attempt} {accounts} {self.account} {self.balance}"

    @classmethod
    def parse(cls, value: str) -> Self | None:
        """None for a value that says nothing of an account."""
        if value.count(" ") != len(cls._fields) - 1:
            return None
        bank, transfer, attempt, accounts, account, balance = value.split()
        return cls(bank, int(transfer), attempt, tuple(map(int, accounts.split("+"))), int(account), int(balance))


def barrier(bank: str, attempt: str, partition: int) -> str:
    """A value that says nothing: who has read it has read all that its producer's predecessors wrote there."""
    return f"{bank} {attempt} {partition}"


@dataclass
class Ledger:
    """Where a bank stands, as far as its statements have been read."""

    transfer: int = -1
    balances: dict[int, int] = field(default_factory=dict)
    _as_of: dict[int, int] = field(default_factory=dict)

    def read(self, statement: Statement) -> None:
        """Statements of one account come in order, those of two in any."""
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
    """Of each bank's transfers, in order: they are one attempt's, and after each the sum is what it was. Who has read
    `to_the_end` has all of them; who has not, is asked about those before the first that he has not read as a whole."""
    banks: dict[str, dict[int, list[Statement]]] = defaultdict(lambda: defaultdict(list))
    for each in statements:
        banks[each.bank][each.transfer].append(each)
    return [wrong for bank, transfers in sorted(banks.items()) for wrong in _wrong(bank, transfers, to_the_end)]


def _wrong(bank: str, transfers: Mapping[int, list[Statement]], to_the_end: bool) -> Iterable[str]:
    balances: dict[int, int] = {}
    for number in range(max(transfers) + 1):
        told = transfers.get(number, [])
        if not to_the_end and not _whole(told):
            return
        if not told:
            yield f"{bank}: transfer {number} is missing"
        attempts = sorted({each.attempt for each in told})
        if len(attempts) > 1:
            yield f"{bank}: transfer {number} is there by {attempts}"
        balances.update((each.account, each.balance) for each in told)
        if sum(balances.values()) != TOTAL:
            yield f"{bank}: after transfer {number} the accounts hold {sum(balances.values())}, not {TOTAL}"


def _whole(told: list[Statement]) -> bool:
    """Whether every attempt that there is of a transfer speaks of all its accounts."""
    spoken = {(each.attempt, each.account) for each in told}
    return bool(told) and all((each.attempt, account) in spoken for each in told for account in each.accounts)
