"""What is written and read beside the events, each on a topic of its own: numbers in transactions, the accounts of a
bank, and keys that are compacted.

A workload's writers and `reader` work while all goes wrong; when all is well and the writers are done, `again` reads
from the beginning, and what it finds is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from simulation.bank_checks import BankChecks, Ledger
from simulation.checks import Checks, Violation
from simulation.client import Client, Place
from simulation.committed_reader import CommittedReader
from simulation.producers import Producer
from simulation.readers import Reader
from simulation.tellers import Teller
from simulation.transaction_checks import TransactionChecks
from simulation.transactors import Transactor

Sometimes = Literal["bank", "keys"]
"""What is there in a part of the runs."""
SOMETIMES: tuple[Sometimes, ...] = ("bank", "keys")
KEYED = "keyed"
Clients = Callable[[str], Client]
"""A client on a host of its own."""


class Writer(Protocol):
    async def run(self, mean_pause_s: float) -> None: ...

    def stop(self) -> None: ...


class Workload(Protocol):
    topic: str
    partitions: int
    settings: Mapping[str, str]
    """Of the topic."""
    again: CommittedReader

    @property
    def writers(self) -> Sequence[Writer]: ...

    @property
    def reader(self) -> CommittedReader | Reader: ...

    def judge(self) -> None:
        """Both readers are at the end."""
        ...


class Numbers:
    """Each transactor keeps how far it has come as an offset of a partition of `source`."""

    topic = "results"
    partitions = 2
    settings: Mapping[str, str] = {}

    def __init__(self, client: Clients, failed: Callable[[Violation], None], source: str) -> None:
        self._checks = TransactionChecks(failed)
        place = (self.topic, self.partitions)
        self.writers = [Transactor(client(f"transactor-{at}"), self._checks, *place, source, at) for at in range(2)]
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
        self.writers = [Teller(client(f"teller-{at}"), self._checks, self._bank, *place) for at in range(2)]
        self.reader = CommittedReader(client("accountant"), self._checks, *place)
        self.again = CommittedReader(client("auditor"), None, *place)

    @property
    def transfers(self) -> int:
        return self._bank.transfers

    @property
    def ended_too_late(self) -> int:
        """How many transactions tellers wanted to end that were fenced."""
        return self._checks.ended_too_late

    def judge(self) -> None:
        found = self.again.found
        self._checks.final(found)
        self._bank.found(Ledger(value for log in found.values() for value in log.values()))


class Keys:
    """One producer writes all of them, so that what comes later is known."""

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
        """How many records replicas lack in the end."""

    def judge(self) -> None:
        """What is compacted away meanwhile, the replicas show."""

    def judge_replicas(self, place: Place, end: int, logs: Mapping[int, Mapping[int, bytes]]) -> None:
        """Values by offset, by broker; `end` is the high watermark."""
        self.compacted += sum(end - len(log) for log in logs.values())
        seen = {f"broker {broker}": log for broker, log in logs.items()}
        self._checks.final_keys(place, {**seen, "a reader": self.again.found[place]})
