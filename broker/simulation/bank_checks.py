"""The rules for a bank whose accounts are records: no transfer changes the sum of all balances.

A transfer writes the new balances of two accounts in one transaction. Its number is one more than that of the last
transfer that its producer has read. A reader can therefore order the transfers of all partitions by number, and two
producers that continued from the same transfer are found by a number that is stored twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

from simulation.transaction_checks import TransactionChecks

ACCOUNTS = 6
OPENING_BALANCE = 100
TOTAL = ACCOUNTS * OPENING_BALANCE
BARRIER = b"barrier"
"""A value in place of a statement. A producer that has read its own barrier has read everything that earlier producers
wrote to the partition. Without a barrier, a leader that does not know yet that it was replaced could return less, as
in Kafka."""


class Statement(NamedTuple):
    """The balance of an account after a transfer. `attempt` numbers the transactions of one producer."""

    producer: bytes
    transfer: int
    """The number of the transfer; transfer 0 opens all accounts."""
    account: int
    balance: int
    attempt: int

    def value(self) -> bytes:
        return b"%s:%d:%d:%d#%d" % self

    @classmethod
    def parse(cls, value: bytes) -> Self | None:
        """Return None for a barrier."""
        statement, _, attempt = value.partition(b"#")
        producer, *rest = statement.split(b":")
        if rest[0] == BARRIER:
            return None
        transfer, account, balance = map(int, rest)
        return cls(producer, transfer, account, balance, int(attempt))


class Ledger:
    """The balances that these values add up to. `wrong` names the first broken rule."""

    def __init__(self, values: Iterable[bytes]) -> None:
        self.transfers = 0
        self.balances: dict[int, int] = {}
        self.wrong = ""
        by_number: dict[int, list[Statement]] = defaultdict(list)
        for statement in filter(None, map(Statement.parse, values)):
            by_number[statement.transfer].append(statement)
        while by_number and not self.wrong:
            self.add(by_number.pop(self.transfers, ()))

    def add(self, statements: Sequence[Statement]) -> None:
        """Apply the next transfer."""
        number = self.transfers
        self.transfers += 1
        self.balances |= {each.account: each.balance for each in statements}
        attempts = {(each.producer, each.attempt) for each in statements}
        total = sum(self.balances.values())
        if len(attempts) > 1:
            self.wrong = f"transfer {number} was made more than once: {sorted(attempts)}"
        elif len(statements) != (2 if number else ACCOUNTS):
            self.wrong = f"transfer {number} is stored in part: {list(statements)}"
        elif total != TOTAL:
            self.wrong = f"the sum of all accounts after transfer {number} is {total}: {list(statements)}"


class BankChecks:
    """The rules for one bank; `transactions` checks the single transactions."""

    def __init__(self, transactions: TransactionChecks) -> None:
        self._transactions = transactions
        self.transfers = 0

    def transferred(self, transfers: int) -> None:
        """Record a committed transfer; `transfers` counts all of them."""
        self.transfers = max(self.transfers, transfers)

    def found(self, ledger: Ledger) -> None:
        """Record the committed balances at a time at which no producer can commit."""
        if ledger.wrong:
            self._transactions.fail(ledger.wrong)
        if ledger.transfers < self.transfers:
            self._transactions.fail(f"{self.transfers} transfers were committed, {ledger.transfers} are stored")
