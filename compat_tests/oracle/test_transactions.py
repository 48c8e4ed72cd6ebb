"""WriteTxnMarkers: transactions that a coordinator or `kafka-transactions abort` ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from odradek_peers import KAFKA_3_9, KAFKA_4_3, JavaTools

from compat_tests.oracle.batches import batch, summary
from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.request_bodies import fetch_body, produce_body
from compat_tests.oracle.schema import Body

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
PRODUCER = 900


class Transactions:
    """A topic on both brokers, and one producer's transactions there."""

    def __init__(self, pair: Pair, version: int, topic: str) -> None:
        self.pair = pair
        self.version = version
        self.topic = topic
        self._id = pair.create_topic(self.topic, 2)

    def produce(self, epoch: int, sequence: int = 0) -> None:
        """Send a record of a transaction that no coordinator knows."""
        records = batch([b"v"], producer=(PRODUCER, epoch, sequence), transactional=True)
        body = produce_body(9, self.topic, self._id, (0, records))
        self.pair.ask("Produce", 9, {**body, "transactional_id": self.topic})

    def marker(
        self,
        *parts: tuple[str, list[int]],
        producer: int = PRODUCER,
        epoch: int = 0,
        commit: bool = False,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> Body:
        body: Body = {
            "producer_id": producer,
            "producer_epoch": epoch,
            "transaction_result": commit,
            "topics": [{"name": name, "partition_indexes": indexes} for name, indexes in parts or ((self.topic, [0]),)],
            "coordinator_epoch": coordinator_epoch,
        }
        return {**body, "transaction_version": transaction_version} if self.version >= 2 else body

    def write(self, *markers: Body) -> None:
        """Send WriteTxnMarkers and compare the results."""
        self.pair.ask("WriteTxnMarkers", self.version, {"markers": list(markers)}, _by_producer)
        self.compare()

    def compare(self) -> None:
        """Compare the producers and the last batches of both partitions."""
        asked = {"topics": [{"name": self.topic, "partition_indexes": [0, 1]}]}
        self.pair.ask("DescribeProducers", 0, asked)
        for partition in (0, 1):
            wanted: Body = {"partition_index": partition, "timestamp": -1}
            body = {"replica_id": -1, "topics": [{"name": self.topic, "partitions": [wanted]}]}
            found = self.pair.ask("ListOffsets", 7, body)["topics"][0]["partitions"][0]
            last = {"partition": partition, "fetch_offset": max(found["offset"] - 1, 0)}
            self.pair.ask("Fetch", 12, fetch_body(12, self.topic, None, last, isolation_level=1), summary)


def _by_producer(response: Body) -> Body:
    """Sort markers: Kafka's order is that of a hash map."""
    return {"markers": sorted(response["markers"], key=lambda each: int(each["producer_id"]))}


@versions_of("WriteTxnMarkers")
def test_write_txn_markers(version: int, pair_for: PairFor) -> None:
    pair = pair_for("WriteTxnMarkers", version)
    transactions = Transactions(pair, version, f"marked-{version}")
    topic = transactions.topic

    transactions.produce(1)
    transactions.write(transactions.marker(epoch=0))
    transactions.write(transactions.marker(epoch=1, coordinator_epoch=3))
    transactions.write(transactions.marker(epoch=1, coordinator_epoch=3))
    transactions.write(transactions.marker(epoch=2, coordinator_epoch=2))
    transactions.produce(1, 1)
    transactions.write(transactions.marker(epoch=2, coordinator_epoch=3, commit=True))
    transactions.produce(1, 2)
    transactions.produce(2)
    transactions.write(
        transactions.marker((topic, [0, 9]), ("no-such-topic", [0]), epoch=2, coordinator_epoch=3),
        transactions.marker((topic, [1]), epoch=2, coordinator_epoch=4),
        transactions.marker((topic, [1]), producer=PRODUCER + 1, commit=True),
    )
    transactions.write()
    transactions.write(transactions.marker((topic, [])))
    transactions.write(transactions.marker(producer=-1))
    transactions.write(transactions.marker(epoch=-1))


@versions_of("WriteTxnMarkers", 2)
def test_a_marker_of_transaction_version_2_has_the_next_epoch(version: int, pair_for: PairFor) -> None:
    transactions = Transactions(pair_for("WriteTxnMarkers", version), version, "of-version-2")

    def write(epoch: int, transaction_version: int = 2) -> None:
        transactions.write(transactions.marker(epoch=epoch, transaction_version=transaction_version))

    transactions.produce(1)
    for epoch in (0, 1, 2, 2):
        write(epoch)
    transactions.produce(2)
    for transaction_version in (3, 2, -1, 1):
        write(2, transaction_version)
    transactions.produce(0x7FFF)
    write(0x7FFF)


@pytest.mark.parametrize("release", [KAFKA_4_3, KAFKA_3_9])
def test_kafka_transactions_aborts_a_hanging_transaction(release: str, pair_for: PairFor) -> None:
    pair = pair_for("WriteTxnMarkers", 1)
    transactions = Transactions(pair, 1, f"hanging-{release}")
    transactions.produce(1)

    for peer in (pair.kafka, pair.ours):
        where = ("--bootstrap-server", f"{peer.host}:{peer.port}")
        what = ("--topic", transactions.topic, "--partition", "0", "--start-offset", "0")
        JavaTools(release).run("kafka-transactions", *where, "abort", *what)

    transactions.compare()
    asked = {"topics": [{"name": transactions.topic, "partition_indexes": [0]}]}
    (topic,) = pair.ask("DescribeProducers", 0, asked)["topics"]
    (producer,) = topic["partitions"][0]["active_producers"]
    assert producer["current_txn_start_offset"] == -1
