"""Random transactions: both brokers send the same responses to requests of old and new producers in any order."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from compat_tests.oracle.pair import Pair
from compat_tests.oracle.transactional_client import NEWEST_LEVEL, NO_PRODUCER, Producer, TransactionalClient

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
STEPS = 60
UNKNOWN_PRODUCER_ID = 4242


class Clients(NamedTuple):
    """The versions of the clients' requests."""

    produce: Sequence[int]
    commit_offsets: Sequence[int]
    end: Sequence[int]


OLD = Clients(produce=(9, 10, 11), commit_offsets=range(5), end=range(5))
NEW = Clients(produce=(12, 13), commit_offsets=(5,), end=(5,))
MIXED = Clients(produce=range(9, 14), commit_offsets=range(6), end=(0, 1, 2, 3, 4, 5, 5, 5, 5))


class Walk:
    """A random sequence of requests for one transactional id, from all its producers."""

    def __init__(self, pair: Pair, name: str, clients: Clients, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clients = clients
        self.client = TransactionalClient(pair, name)
        self.known: list[Producer] = []

    def step(self) -> None:
        chance, client = self.chance, self.client
        by = self._pick_producer()
        match chance.randrange(20):
            case 0:
                client.init(chance.randrange(6))
            case 1 | 2:
                client.init(chance.randint(3, 5), by)
            case 3 | 4:
                client.add(*self._partitions(), version=chance.randrange(4), by=by)
            case 5 | 6 if self.clients is not OLD:
                client.ask_as_broker(client.transaction(*self._partitions(), by=by), version=chance.randint(4, 5))
            case 5 | 6 | 7:
                asked = client.transaction(*self._partitions(), by=by, verify=True)
                client.ask_as_broker(asked, version=chance.randint(4, 5))
            case 8:
                client.add_offsets(version=chance.randrange(5), by=by)
            case 9 | 10:
                client.commit_offsets(chance.randrange(100), version=chance.choice(self.clients.commit_offsets), by=by)
            case 11 | 12 | 13 | 14:
                client.produce(chance.randrange(3), version=chance.choice(self.clients.produce), by=by)
            case _:
                version = chance.choice(self.clients.end)
                if self.clients is MIXED and version == 5 and by.epoch == client.producer.epoch - 1:
                    # After an old client's EndTxn with an epoch from InitProducerId, Kafka considers EndTxn v5 with
                    # the epoch before a retry of the same client. Ours recognizes the other client.
                    by = client.producer
                client.end(chance.random() < 0.5, version=version, by=by)
        if client.producer not in self.known:
            self.known.append(client.producer)

    def _partitions(self) -> list[int]:
        return sorted(self.chance.sample(range(3), self.chance.randint(1, 2)))

    def _pick_producer(self) -> Producer:
        """Return mostly the present producer, otherwise an earlier one or one with a neighbouring epoch."""
        chance, client = self.chance, self.client
        if client.producer is NO_PRODUCER or chance.random() < 0.7:
            return client.producer
        match chance.randrange(8):
            case 0:
                return Producer(UNKNOWN_PRODUCER_ID, client.producer.epoch)
            case 1:
                return chance.choice(self.known)
            case 2:
                return client.producer.at(1)
            case 3:
                return client.producer.at(-2)
            case _:
                return client.producer.at(-1)


@pytest.mark.parametrize("seed", range(6))
def test_random_transactions(seed: int, level: int, pair_for: PairFor) -> None:
    # Before the newest level new clients use the old protocol.
    clients = (NEW, OLD, MIXED)[seed % 3] if level == NEWEST_LEVEL else OLD
    walk = Walk(pair_for("EndTxn", 5), f"walk-{level}-{seed}", clients, seed)
    for _ in range(STEPS):
        walk.step()
        walk.client.compare()
