"""Random transactions: both brokers send the same responses to any order of requests of old and new producers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

import pytest

from compat_tests.oracle.coordinated import NEWEST_LEVEL, NOBODY, Coordinated, Producer
from compat_tests.oracle.pair import Pair

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
STEPS = 60
STRANGER = 4242


class Clients(NamedTuple):
    """The versions of the clients' requests."""

    produce: Sequence[int]
    commit_offsets: Sequence[int]
    end: Sequence[int]


OLD = Clients(produce=(9, 10, 11), commit_offsets=range(5), end=range(5))
NEW = Clients(produce=(12, 13), commit_offsets=(5,), end=(5,))
MIXED = Clients(produce=range(9, 14), commit_offsets=range(6), end=(0, 1, 2, 3, 4, 5, 5, 5, 5))


class Walk:
    """One transactional id and all its producers."""

    def __init__(self, pair: Pair, name: str, clients: Clients, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clients = clients
        self.mine = Coordinated(pair, name)
        self.known: list[Producer] = []

    def step(self) -> None:
        chance, mine = self.chance, self.mine
        by = self._somebody()
        match chance.randrange(20):
            case 0:
                mine.init(chance.randrange(6))
            case 1 | 2:
                mine.init(chance.randint(3, 5), by)
            case 3 | 4:
                mine.add(*self._partitions(), version=chance.randrange(4), by=by)
            case 5 | 6 if self.clients is not OLD:
                mine.ask_as_broker(mine.added(*self._partitions(), by=by), version=chance.randint(4, 5))
            case 5 | 6 | 7:
                asked = mine.added(*self._partitions(), by=by, verify=True)
                mine.ask_as_broker(asked, version=chance.randint(4, 5))
            case 8:
                mine.add_offsets(version=chance.randrange(5), by=by)
            case 9 | 10:
                mine.commit_offsets(chance.randrange(100), version=chance.choice(self.clients.commit_offsets), by=by)
            case 11 | 12 | 13 | 14:
                mine.produce(chance.randrange(3), version=chance.choice(self.clients.produce), by=by)
            case _:
                version = chance.choice(self.clients.end)
                if self.clients is MIXED and version == 5 and by.epoch == mine.producer.epoch - 1:
                    # After an old client's EndTxn with an epoch from InitProducerId, Kafka takes EndTxn v5 of the
                    # epoch before for a retry of the same client. Ours recognizes the other client.
                    by = mine.producer
                mine.end(chance.random() < 0.5, version=version, by=by)
        if mine.producer not in self.known:
            self.known.append(mine.producer)

    def _partitions(self) -> list[int]:
        return sorted(self.chance.sample(range(3), self.chance.randint(1, 2)))

    def _somebody(self) -> Producer:
        """Return mostly the present producer, otherwise an earlier one or one with a neighbouring epoch."""
        chance, mine = self.chance, self.mine
        if mine.producer is NOBODY or chance.random() < 0.7:
            return mine.producer
        match chance.randrange(8):
            case 0:
                return Producer(STRANGER, mine.producer.epoch)
            case 1:
                return chance.choice(self.known)
            case 2:
                return mine.producer.at(1)
            case 3:
                return mine.producer.at(-2)
            case _:
                return mine.producer.at(-1)


@pytest.mark.parametrize("seed", range(6))
def test_random_transactions(seed: int, level: int, pair_for: PairFor) -> None:
    # Before the newest level new clients use the old protocol.
    clients = (NEW, OLD, MIXED)[seed % 3] if level == NEWEST_LEVEL else OLD
    walk = Walk(pair_for("EndTxn", 5), f"walk-{level}-{seed}", clients, seed)
    for _ in range(STEPS):
        walk.step()
        walk.mine.look()
