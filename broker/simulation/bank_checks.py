"""What must hold of a bank whose accounts are records: after each transfer the sum is what it was.

A transfer takes from one account and gives to another, and writes both new balances in one transaction; its number is
one more than that of the last one that its teller has found. So the transfers in the order of their numbers are the
points at which the bank is consistent, in whatever order a reader meets the partitions, and two tellers that went on
from the same point betray themselves by a number that is there twice.
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
"""In the place of a statement: who has read it has read all that its teller's predecessors wrote there, from whichever
leader. (One that does not know yet that it is no leader any more shows what there was when it was, with Kafka as well.)
"""


class Statement(NamedTuple):
    """That an account has so much after a transfer. `attempt` is that of one teller: a transaction."""

    teller: bytes
    transfer: int
    """Counts up from 0, which opens all accounts."""
    account: int
    balance: int
    attempt: int

    def value(self) -> bytes:
        return b"%s:%d:%d:%d#%d" % self

    @classmethod
    def parse(cls, value: bytes) -> Self | None:
        """None for a barrier."""
        statement, _, attempt = value.partition(b"#")
        teller, *rest = statement.split(b":")
        if rest[0] == BARRIER:
            return None
        transfer, account, balance = map(int, rest)
        return cls(teller, transfer, account, balance, int(attempt))


class Ledger:
    """Where the bank stands by these values. `wrong` says what cannot be, if anything."""

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
        """The next transfer."""
        number = self.transfers
        self.transfers += 1
        self.balances |= {each.account: each.balance for each in statements}
        attempts = {(each.teller, each.attempt) for each in statements}
        total = sum(self.balances.values())
        if len(attempts) > 1:
            self.wrong = f"transfer {number} was made more than once: {sorted(attempts)}"
        elif len(statements) != (2 if number else ACCOUNTS):
            self.wrong = f"transfer {number} is there in part: {list(statements)}"
        elif total != TOTAL:
            self.wrong = f"the sum of all accounts after transfer {number} is {total}: {list(statements)}"


class BankChecks:
    """Of one bank; what becomes of single transactions is for `transactions` to check."""

    def __init__(self, transactions: TransactionChecks) -> None:
        self._transactions = transactions
        self.transfers = 0

    def transferred(self, transfers: int) -> None:
        """The commit of a transfer was answered; with it there are so many."""
        self.transfers = max(self.transfers, transfers)

    def found(self, ledger: Ledger) -> None:
        """Nobody is about to transfer anything, and this is what is committed."""
        if ledger.wrong:
            self._transactions.fail(ledger.wrong)
        if ledger.transfers < self.transfers:
            self._transactions.fail(f"{self.transfers} transfers were made, {ledger.transfers} are found")
