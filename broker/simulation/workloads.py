"""Workloads with a topic of their own: consecutive numbers in transactions, the accounts of a bank, compacted keys.

The writers and `reader` of a workload run during the faults. After the faults, when the writers have finished, `again`
reads the topic from the beginning, and `judge` checks it.
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
    again: CommittedReader

    @property
    def writers(self) -> Sequence[Writer]: ...

    @property
    def reader(self) -> CommittedReader | Reader: ...

    def judge(self) -> None:
        """Check the records once both readers have reached the end."""
        ...


class Numbers:
    """Each `TransactionalCopier` commits its position as an offset of a partition of `source`."""

    topic = "results"
    partitions = 2
    settings: Mapping[str, str] = {}

    def __init__(self, client: Clients, failed: Callable[[Violation], None], source: str) -> None:
        self._checks = TransactionChecks(failed)
        place = (self.topic, self.partitions)
        self.writers = [
            TransactionalCopier(client(f"transactor-{at}"), self._checks, *place, source, at) for at in range(2)
        ]
        self.reader = CommittedReader(client("committed"), self._checks, *place)
        self.again = CommittedReader(client("final"), None, *place)

    def judge(self) -> None:
        self._checks.final(self.again.found)


class Bank:
    topic = "accounts"
    partitions = 3
    settings: Mapping[str, str] = {}

    def __init__(self, client: Clients, failed: Callable[[Violation], None]) -> None:
        self._checks = TransactionChecks(failed)
        self._bank = BankChecks(self._checks)
        place = (self.topic, self.partitions)
        self.writers = [BankProducer(client(f"teller-{at}"), self._checks, self._bank, *place) for at in range(2)]
        self.reader = CommittedReader(client("accountant"), self._checks, *place)
        self.again = CommittedReader(client("auditor"), None, *place)

    @property
    def transfers(self) -> int:
        return self._bank.transfers

    @property
    def fenced_ends(self) -> int:
        """The number of transactions that a fenced producer tried to end."""
        return self._checks.fenced_ends

    def judge(self) -> None:
        found = self.again.found
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
        place = (self.topic, self.partitions)
        self.writers = [Producer(client("keyed"), checks, *place, acks=-1, idempotent=True, keyed=True)]
        self.reader = Reader(client("keyed-reader"), checks, *place)
        self.again = CommittedReader(client("keyed-again"), None, *place)
        self.compacted = 0
        """The number of records that compaction has removed, summed over all replicas."""

    def judge(self) -> None:
        """Do nothing: `judge_replicas` checks what is left after compaction."""

    def judge_replicas(self, place: TopicPartition, end: int, logs: Mapping[int, Mapping[int, bytes]]) -> None:
        """Check a partition's values by offset, by broker; `end` is its high watermark."""
        self.compacted += sum(end - len(log) for log in logs.values())
        seen = {f"broker {broker}": log for broker, log in logs.items()}
        self._checks.final_keys(place, {**seen, "a reader": self.again.found[place]})
