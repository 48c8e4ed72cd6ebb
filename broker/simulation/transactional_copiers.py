"""Producers that write consecutive numbers and commit their position in the same transaction.

They work as a consume-transform-produce loop does, with numbers in place of consumed records. Some transactions are
aborted or abandoned.
"""

from __future__ import annotations

import asyncio

from simulation.client import Client, UnreachableError
from simulation.transaction_checks import TransactionChecks
from simulation.transactional_producer import GivenUpError, TransactionalProducer


class TransactionalCopier:
    """Writes to the partitions of `topic`, and commits its position as the offset of partition `number` of `source`."""

    def __init__(
        self, *, client: Client, checks: TransactionChecks, topic: str, partitions: int, source: str, number: int
    ) -> None:
        self._client = client
        self._checks = checks
        self._partitions = partitions
        self._source = (source, number)
        self._name = client.host.encode()
        self._producer = TransactionalProducer(client, checks, client.host, topic, partitions)
        self._transactions = 0
        self._position = 0
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self, mean_pause_s: float) -> None:
        chance = self._client.chance
        while True:
            try:
                await self._begin()
                while not self._stopping:
                    await asyncio.sleep(chance.expovariate(1 / mean_pause_s))
                    await self._transact()
                return
            except (UnreachableError, GivenUpError) as error:
                self._client.note(f"starts again after {type(error).__name__}: {error}")
                self._producer.forget_all()
                await asyncio.sleep(chance.uniform(0.05, 0.5))

    async def _begin(self) -> None:
        await self._producer.begin()
        self._position = max(await self._producer.offset(self._source), 0)
        self._checks.position_fetched(self._name, self._position)

    async def _transact(self) -> None:
        chance = self._client.chance
        self._transactions += 1
        transaction = b"%s#%d" % (self._name, self._transactions)
        written: dict[int, list[bytes]] = {}
        for number in range(self._position, self._position + chance.randint(1, 4)):
            value = b"%s:%d#%d" % (self._name, number, self._transactions)
            written.setdefault(chance.randrange(self._partitions), []).append(value)
        self._checks.writing(transaction, (value for values in written.values() for value in values))
        end = self._position + sum(map(len, written.values()))
        await self._producer.add(sorted(written))
        for partition, values in written.items():
            await self._producer.write(partition, values)
        await self._producer.commit_offset(self._source, end)
        what = chance.random()
        if what < 0.1:
            raise GivenUpError("simulated crash")
        commit = what < 0.75
        await self._producer.end(transaction, commit=commit)
        if commit:
            self._checks.position_committed(self._name, end)
            self._position = end
