"""Workloads with a topic of their own: consecutive numbers in transactions, the accounts of a bank, compacted keys.

The writers and `reader` of a workload run during the faults. When the writers have finished after the faults,
`final_reader` reads the topic from the beginning, and `check` compares the records with those of the writers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from simulation.bank_checks import BankChecks, Ledger
from simulation.bank_producers import BankProducer
from simulation.checks import Checks, Violation
from simulation.client import Client, TopicPartition
from simulation.committed_reader import CommittedReader
from simulation.producers import Producer
from simulation.readers import Reader
from simulation.transaction_checks import TransactionChecks
from simulation.transactional_copiers import TransactionalCopier

OptionalWorkload = Literal["bank", "keys"]
"""The workloads that only some runs have."""
OPTIONAL_WORKLOADS: tuple[OptionalWorkload, ...] = ("bank", "keys")
KEYED = "keyed"
Clients = Callable[[str], Client]
"""Makes a client on the named host."""


class Writer(Protocol):
    async def run(self, mean_pause_s: float) -> None: ...

    def stop(self) -> None: ...


class Workload(Protocol):
    topic: str
    partitions: int
    settings: Mapping[str, str]
    """The configuration of the topic."""
    final_reader: CommittedReader

    @property
    def writers(self) -> Sequence[Writer]: ...

    @property
    def reader(self) -> CommittedReader | Reader: ...

    def check(self) -> None:
        """Check the records once both readers have reached the end."""
        ...


class Numbers:
    """Each `TransactionalCopier` commits its position as an offset of a partition of `source`."""

    topic = "results"
    partitions = 2
    settings: Mapping[str, str] = {}

    def __init__(self, client: Clients, on_violation: Callable[[Violation], None], source: str) -> None:
        self._checks = TransactionChecks(on_violation)
        topic = (self.topic, self.partitions)
        self.writers = [
            TransactionalCopier(
                client=client(f"transactor-{number}"),
                checks=self._checks,
                topic=self.topic,
                partitions=self.partitions,
                source=source,
                number=number,
            )
            for number in range(2)
        ]
        self.reader = CommittedReader(client("committed"), self._checks, *topic)
        self.final_reader = CommittedReader(client("final"), None, *topic)

    def check(self) -> None:
        self._checks.final(self.final_reader.found)


class Bank:
    topic = "accounts"
    partitions = 3
    settings: Mapping[str, str] = {}

    def __init__(self, client: Clients, on_violation: Callable[[Violation], None]) -> None:
        self._checks = TransactionChecks(on_violation)
        self._bank = BankChecks(self._checks)
        topic = (self.topic, self.partitions)
        self.writers = [BankProducer(client(f"teller-{at}"), self._checks, self._bank, *topic) for at in range(2)]
        self.reader = CommittedReader(client("accountant"), self._checks, *topic)
        self.final_reader = CommittedReader(client("auditor"), None, *topic)

    @property
    def transfers(self) -> int:
        return self._bank.transfers

    @property
    def fenced_ends(self) -> int:
        """The number of transactions that a fenced producer tried to end."""
        return self._checks.fenced_ends

    def check(self) -> None:
        found = self.final_reader.found
        self._checks.final(found)
        self._bank.found(Ledger(value for log in found.values() for value in log.values()))


class Keys:
    """One producer writes every value of a key, so that the order of the values is known."""

    topic = KEYED
    partitions = 2
    settings: Mapping[str, str] = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "700",
    }

    def __init__(self, client: Clients, checks: Checks) -> None:
        self._checks = checks
        topic = (self.topic, self.partitions)
        self.writers = [Producer(client("keyed"), checks, *topic, acks=-1, idempotent=True, keyed=True)]
        self.reader = Reader(client("keyed-reader"), checks, *topic)
        self.final_reader = CommittedReader(client("keyed-again"), None, *topic)
        self.compacted = 0
        """The number of records that compaction has removed, summed over all replicas."""

    def check(self) -> None:
        """Do nothing: `check_replicas` checks the records that are left after compaction."""

    def check_replicas(self, partition: TopicPartition, end: int, logs: Mapping[int, Mapping[int, bytes]]) -> None:
        """Check the values by offset of each broker's replica; `end` is the high watermark."""
        self.compacted += sum(end - len(log) for log in logs.values())
        seen = {f"broker {broker}": log for broker, log in logs.items()}
        self._checks.final_keys(partition, {**seen, "a reader": self.final_reader.found[partition]})
