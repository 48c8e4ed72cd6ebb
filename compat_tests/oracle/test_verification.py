"""Produce with transactional batches and verification by the transaction coordinator (KIP-890): before version 12 the
broker verifies that the client has added the partition, from then on the broker adds it."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from compat_tests.oracle.batches import batch, with_bytes, with_new_crc
from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Peer, Var
from compat_tests.oracle.schema import Body
from compat_tests.oracle.transactional_client import verify_partitions

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
BROKER_ADDS_FROM = 12
CONTROL_AND_TRANSACTIONAL = b"\x00\x30"
ATTRIBUTES_AT = 21
_numbers = count(1)


@pytest.fixture
def verifying(pair_for: PairFor) -> Iterator[PairFor]:
    """As `pair_for`, with partition verification enabled, dynamically, until the end of the test."""
    peers: list[Peer] = []

    def connect(api: str, version: int) -> Pair:
        pair = pair_for(api, version)
        peers.extend((pair.kafka, pair.ours))
        verify_partitions(peers, True)
        return pair

    yield connect
    verify_partitions(peers, False)


class Transactions:
    """A transactional id on both brokers, and a topic of three partitions."""

    def __init__(self, pair: Pair, version: int, name: str) -> None:
        self.pair = pair
        self.version = version
        self.name = self.topic = f"{name}-{version}"
        self._id = pair.create_topic(self.topic, 3)
        for peer in (pair.kafka, pair.ours):
            while peer.ask("FindCoordinator", 3, {"key": self.name, "key_type": 1})["error_code"]:
                pass
            body = {"transactional_id": self.name, "transaction_timeout_ms": 60_000}
            while (response := peer.ask("InitProducerId", 4, body))["error_code"]:
                pass
            self._remember_producer(peer, response)

    def produce(
        self, *parts: tuple[int, int], epoch: int = 0, producer: int = 0, plain: bool = False, **more: object
    ) -> None:
        """Send a record to each partition with this sequence. `epoch` and `producer` are added to the current ones."""
        rows = [(index, self._records(sequence, epoch, producer, plain)) for index, sequence in parts]
        self.produce_records(*rows, **more)

    def produce_records(self, *rows: tuple[int, object], **more: object) -> None:
        named: Body = {"topic_id": self._id} if self.version >= 13 else {"name": self.topic}
        data = [{"index": index, "records": records} for index, records in rows]
        body: Body = {"transactional_id": self.name, "acks": -1, "timeout_ms": 10_000}
        self.pair.ask("Produce", self.version, {**body, "topic_data": [{**named, "partition_data": data}], **more})

    def add(self, *indexes: int) -> None:
        """Send AddPartitionsToTxn if clients of this version do so."""
        if self.version < BROKER_ADDS_FROM:
            body = {
                "v3_and_below_transactional_id": self.name,
                "v3_and_below_producer_id": Var("producer"),
                "v3_and_below_producer_epoch": Var("epoch"),
                "v3_and_below_topics": [{"name": self.topic, "partitions": list(indexes)}],
            }
            self.pair.ask("AddPartitionsToTxn", 3, body)

    def end(self, *, commit: bool = True) -> None:
        """End the transaction and wait until all markers are written."""
        adds = self.version >= BROKER_ADDS_FROM
        for peer in (self.pair.kafka, self.pair.ours):
            body = {
                "transactional_id": self.name,
                "producer_id": Var("producer"),
                "producer_epoch": Var("epoch"),
                "committed": commit,
            }
            response = peer.ask("EndTxn", 5 if adds else 4, body)
            assert response["error_code"] == 0, (peer.name, response)
            if adds:
                self._remember_producer(peer, response)
            asked = {"transactional_ids": [self.name]}
            while "Complete" not in peer.ask("DescribeTransactions", 0, asked)["transaction_states"][0][_STATE]:
                pass

    def compare(self) -> None:
        """Compare the state of the transaction and the partitions' producers."""
        (state,) = self.pair.ask("DescribeTransactions", 0, {"transactional_ids": [self.name]}, _without_times)[
            "transaction_states"
        ]
        assert state["error_code"] == 0
        asked = {"topics": [{"name": self.topic, "partition_indexes": [0, 1, 2]}]}
        self.pair.ask("DescribeProducers", 0, asked, _without_coordinators)

    @staticmethod
    def _remember_producer(peer: Peer, response: Body) -> None:
        peer.remember("producer", response["producer_id"])
        peer.remember("epoch", response["producer_epoch"])

    def _records(self, sequence: int, epoch: int, producer: int, plain: bool) -> Var:
        """Return a batch of one record, with each broker's own producer id."""
        found = Var(f"records {next(_numbers)}")
        for peer in (self.pair.kafka, self.pair.ours):
            known = peer.known
            identity = (known["producer"] + producer, known["epoch"] + epoch, sequence)
            peer.remember(found.name, batch([b"v"], producer=identity, transactional=not plain))
        return found


_STATE = "transaction_state"


def _without_times(response: Body) -> Body:
    for state in response["transaction_states"]:
        del state["transaction_start_time_ms"]
        state["topics"] = sorted((topic["topic"], sorted(topic["partitions"])) for topic in state["topics"])
    return response


def _without_coordinators(response: Body) -> Body:
    """Drop coordinator epochs, which are leader epochs and depend on the history of each broker."""
    for topic in response["topics"]:
        for partition in topic["partitions"]:
            for producer in partition["active_producers"]:
                del producer["coordinator_epoch"]
    return response


@versions_of("Produce", 3)
def test_a_transaction_accepts_its_added_partitions(version: int, verifying: PairFor) -> None:
    transactions = Transactions(verifying("Produce", version), version, "verified")
    transactions.produce((0, 0))
    transactions.compare()
    transactions.add(0, 1)
    transactions.produce((0, 0))
    transactions.produce((0, 1), (1, 0), (2, 0))
    transactions.compare()
    transactions.produce((0, 1))
    transactions.produce((0, 5))
    transactions.produce((0, 2), plain=True)
    transactions.produce((2, 0), plain=True)
    transactions.produce((0, 2), epoch=-1)
    transactions.produce((0, 0), epoch=1)
    transactions.compare()
    transactions.end()
    transactions.compare()
    transactions.produce((0, 1))
    transactions.produce((0, 2))
    transactions.add(1, 2)
    transactions.produce((1, 1))
    transactions.produce((2, 1))
    transactions.produce((1, 0))
    transactions.end(commit=False)
    transactions.compare()
    transactions.produce((1, 0), epoch=-1)
    transactions.produce((1, 1), epoch=-1)


@versions_of("Produce", 3)
def test_a_batch_of_a_transaction_is_refused(version: int, verifying: PairFor) -> None:
    transactions = Transactions(verifying("Produce", version), version, "refused")
    transactions.produce((0, 0), transactional_id=None)
    transactions.produce((0, 0), transactional_id="")
    transactions.produce((0, 0), transactional_id="unknown")
    transactions.produce((0, 0), producer=1)
    transactions.produce((0, 0), epoch=1)
    transactions.produce((0, 0), epoch=-1)
    transactions.produce((9, 0))
    transactions.add(0, 1)
    one, other = transactions._records(0, 0, 0, False), transactions._records(0, 0, 1, False)
    transactions.produce_records((0, one), (1, other))
    plain = batch([b"plain"])
    transactions.produce_records((0, one), (1, plain), transactional_id=None)
    transactions.produce_records((0, batch([b"v"], transactional=True)))
    transactions.produce_records((0, plain))
    transactions.produce_records((0, plain), transactional_id="unknown")
    control = with_bytes(batch([b"v"], producer=(5, 0, 0)), ATTRIBUTES_AT, CONTROL_AND_TRANSACTIONAL)
    transactions.produce_records((0, with_new_crc(control)), transactional_id=None)
    transactions.produce_records((0, with_new_crc(control)))
    transactions.produce((1, 3))
    transactions.produce((1, 2))
    transactions.produce((1, 0), acks=5)
    transactions.compare()
