"""Producers of the bank workload, which share one transactional id and therefore fence each other.

Each one continues from the committed transfers of its predecessors. Sometimes it pauses within a transfer, so that
another producer may fence it meanwhile: as a zombie, it must not commit.
"""

from __future__ import annotations

import asyncio

from simulation.bank_checks import ACCOUNTS, BARRIER, OPENING_BALANCE, BankChecks, Ledger, Statement
from simulation.client import Client, UnreachableError
from simulation.committed_reader import CommittedReader
from simulation.transaction_checks import TransactionChecks
from simulation.transactional_producer import GivenUpError, TransactionalProducer

BANK = "bank"
"""The transactional id of all bank producers."""


class BankProducer:
    """Transfers money; the number of an account decides the partition of its statements."""

    def __init__(
        self, client: Client, transactions: TransactionChecks, bank: BankChecks, topic: str, partitions: int
    ) -> None:
        self._client = client
        self._transactions = transactions
        self._bank = bank
        self._partitions = partitions
        self._name = client.host.encode()
        self._producer = TransactionalProducer(client, transactions, BANK, topic, partitions)
        self._reader = CommittedReader(client, transactions, topic, partitions)
        self._attempts = 0
        self._stopping = False
        self._ledger = Ledger(())

    def stop(self) -> None:
        self._stopping = True

    async def run(self, mean_pause_s: float) -> None:
        chance = self._client.chance
        while True:
            try:
                await self._open()
                while not self._stopping:
                    await asyncio.sleep(chance.expovariate(1 / mean_pause_s))
                    await self._transfer()
                return
            except (UnreachableError, GivenUpError) as error:
                self._client.note(f"starts again after {type(error).__name__}: {error}")
                self._producer.forget_all()
                await asyncio.sleep(chance.uniform(0.05, 0.5 if self._stopping else 3))

    async def _open(self) -> None:
        """Fence the other producers, and read the transfers that they have committed."""
        await self._producer.begin()
        self._attempts += 1
        transaction = b"%s#%d" % (self._name, self._attempts)
        barriers = [b"%s:%s:%d#%d" % (self._name, BARRIER, at, self._attempts) for at in range(self._partitions)]
        self._transactions.writing(transaction, barriers)
        await self._producer.add(list(range(self._partitions)))
        for partition, barrier in enumerate(barriers):
            await self._producer.write(partition, [barrier])
        await self._producer.end(transaction, commit=True)
        await self._reader.read_up_to(barriers)
        self._ledger = Ledger(value for log in self._reader.found.values() for value in log.values())
        if not self._producer.is_fenced:  # otherwise another producer may commit meanwhile
            self._bank.found(self._ledger)

    async def _transfer(self) -> None:
        chance = self._client.chance
        self._attempts += 1
        number = self._ledger.transfers
        balances = dict.fromkeys(range(ACCOUNTS), OPENING_BALANCE)
        if number:
            giver, taker = self._two_accounts()
            amount = chance.randint(1, 20)
            known = self._ledger.balances
            balances = {giver: known[giver] - amount, taker: known[taker] + amount}
        statements = [Statement(self._name, number, *each, self._attempts) for each in balances.items()]
        transaction = b"%s#%d" % (self._name, self._attempts)
        self._transactions.writing(transaction, (each.value() for each in statements))
        await self._producer.add(sorted({each.account % self._partitions for each in statements}))
        for statement in statements:
            await self._producer.write(statement.account % self._partitions, [statement.value()])
            if number and chance.random() < 0.1:
                self._client.note(f"pauses in transfer {number}")
                await asyncio.sleep(chance.uniform(0.5, 4))
        what = chance.random()
        if what < 0.1:
            raise GivenUpError("simulated crash")
        commit = what < 0.8
        await self._producer.end(transaction, commit=commit)
        if commit:
            self._ledger.add(statements)
            self._bank.transferred(self._ledger.transfers)

    def _two_accounts(self) -> list[int]:
        """Choose two accounts in different partitions."""
        accounts = list(range(ACCOUNTS))
        self._client.chance.shuffle(accounts)
        giver, *others = accounts
        return [giver, next(other for other in others if (other - giver) % self._partitions)]
