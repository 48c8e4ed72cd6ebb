"""read_committed consumers: the last stable offset and the aborted transactions; and refused transactional writes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest

from compat_tests.oracle.batches import TIME, batch, summary, with_bytes, with_new_crc
from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Var
from compat_tests.oracle.request_bodies import fetch_body, produce_body
from compat_tests.oracle.schema import Body

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]


class Partition:
    """A partition on both brokers, into which producers write transactions that no coordinator knows."""

    def __init__(self, pair: Pair, topic: str, configs: dict[str, str] | None = None, version: int = 12) -> None:
        self.pair = pair
        self.topic = topic
        self.version = version
        self._id = pair.create_topic(topic, configs=configs)
        self._start = 0
        self._sequences: dict[tuple[int, int], int] = {}

    def produce(
        self,
        producer: int,
        *values: bytes,
        epoch: int = 0,
        sequence: int | None = None,
        transactional: bool = True,
        timestamp: int = TIME,
    ) -> int:
        """Append the producer's next records and compare the responses. Return the error."""
        at = self._sequences.get((producer, epoch), 0) if sequence is None else sequence
        written = (producer, epoch, at) if producer >= 0 else (-1, -1, -1)
        records = batch(values or [b"v"], producer=written, transactional=transactional, timestamp=timestamp)
        error = self.send(records, transactional=transactional)
        if not error:
            self._sequences[producer, epoch] = at + max(len(values), 1)
        return error

    def send(self, records: bytes, *, transactional: bool = True) -> int:
        body = produce_body(9, self.topic, self._id, (0, records))
        response = self.pair.ask("Produce", 9, {**body, "transactional_id": self.topic if transactional else None})
        return int(response["responses"][0]["partition_responses"][0]["error_code"])

    def end(self, producer: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> None:
        marker = {
            "producer_id": producer,
            "producer_epoch": epoch,
            "transaction_result": commit,
            "topics": [{"name": self.topic, "partition_indexes": [0]}],
            "coordinator_epoch": coordinator_epoch,
        }
        self.pair.ask("WriteTxnMarkers", 1, {"markers": [marker]})

    def fetch(self, offset: int, isolation: int = 1, max_bytes: int = 1 << 20, **more: object) -> Body:
        part = {"fetch_offset": offset, "partition_max_bytes": max_bytes}
        body = fetch_body(self.version, self.topic, self._id, part, isolation_level=isolation, **more)
        return self.pair.ask("Fetch", self.version, body, summary)

    def compare(self, *offsets: int) -> None:
        """Compare the responses for readers, and DescribeProducers."""
        for offset in offsets:
            for isolation in (0, 1):
                self.fetch(offset, isolation)
        # After DeleteRecords, Kafka's search by timestamp stops at a segment whose matching records are deleted.
        for timestamp in (-1, -2) if self._start else (-1, -2, TIME, TIME + 50):
            for isolation in (0, 1):
                self.list_offset(timestamp, isolation)
        self.pair.ask(
            "DescribeProducers", 0, {"topics": [{"name": self.topic, "partition_indexes": [0]}]}, _by_producer
        )

    def list_offset(self, timestamp: int, isolation: int = 1) -> int:
        wanted = {"partition_index": 0, "timestamp": timestamp}
        topic = {"name": self.topic, "partitions": [wanted]}
        body = {"replica_id": -1, "isolation_level": isolation, "topics": [topic]}
        response = self.pair.ask("ListOffsets", 7, body, self._listed)
        return int(response["topics"][0]["partitions"][0]["offset"])

    def _listed(self, response: Body) -> Body:
        """Limit the timestamps of markers, which are each broker's own, and raise latest offsets to the log start
        offset (see `summary`)."""
        for topic in response["topics"]:
            for partition in topic["partitions"]:
                partition["timestamp"] = min(partition["timestamp"], TIME + 1000)
                if partition["offset"] >= 0:
                    partition["offset"] = max(partition["offset"], self._start)
        return response

    def delete(self, offset: int) -> None:
        wanted = {"name": self.topic, "partitions": [{"partition_index": 0, "offset": offset}]}
        response = self.pair.ask("DeleteRecords", 2, {"topics": [wanted], "timeout_ms": 10_000})
        self._start = response["topics"][0]["partitions"][0]["low_watermark"]


def _by_producer(response: Body) -> Body:
    for topic in response["topics"]:
        for partition in topic["partitions"]:
            partition["active_producers"].sort(key=lambda each: int(each["producer_id"]))
    return response


@versions_of("Fetch", 4)
def test_read_committed_responses_list_aborted_transactions(version: int, pair_for: PairFor) -> None:
    log = Partition(pair_for("Fetch", version), f"committed-{version}", version=version)
    log.produce(-1, b"before", transactional=False)
    log.produce(901, b"a", b"b")
    log.compare(0, 1, 2, 3, 4)
    log.produce(902, b"c")
    log.end(901, commit=False)
    log.compare(0, 1, 3, 4)
    log.produce(-1, b"behind", transactional=False)
    log.end(902, commit=True)
    log.compare(0, 1, 3, 4, 5, 7, 8)
    log.produce(901, b"d")
    log.end(901, commit=False)
    log.compare(0, 1, 7, 8)
    log.delete(2)
    log.compare(1, 2, 7)
    log.produce(901, b"e", b"f", b"g")
    log.produce(902, b"h")
    log.delete(12 if version == 4 else 10)  # version 4 has no log start offset
    log.compare(9, 12, 13)
    log.end(901, commit=False)
    log.end(902, commit=False)
    log.compare(12, 13, 14)
    log.delete(-1)
    log.compare(14, 15)


def test_a_fetch_session_returns_the_end_of_a_transaction(pair_for: PairFor) -> None:
    pair = pair_for("Fetch", 12)
    log = Partition(pair, "committed-in-a-session")
    log.produce(-1, b"before", transactional=False)
    log.produce(901, b"open")
    log.fetch(1, session_epoch=0)
    body = fetch_body(12, log.topic, None, {"fetch_offset": 1}, isolation_level=1, session_epoch=0)
    pair.learn("Fetch", 12, body, session=lambda response: response["session_id"])

    def fetch_again(epoch: int) -> None:
        asked = {**body, "session_id": Var("session"), "session_epoch": epoch, "topics": []}
        pair.ask("Fetch", 12, asked, summary)

    fetch_again(1)
    log.produce(-1, b"behind", transactional=False)
    fetch_again(2)
    fetch_again(3)
    log.end(901, commit=False)
    fetch_again(4)


def test_transactional_writes_that_are_refused(pair_for: PairFor) -> None:
    log = Partition(pair_for("Fetch", 12), "refused-around-transactions")
    assert log.produce(901, epoch=1) == 0
    errors = [
        log.produce(901, epoch=1, transactional=False),
        log.produce(901, epoch=1, sequence=0),
        log.produce(901, epoch=1, sequence=0, transactional=False),
        log.produce(901, epoch=1, sequence=5),
        log.produce(901, epoch=1, sequence=5, transactional=False),
        log.produce(901, epoch=0),
        log.produce(901, epoch=0, transactional=False),
        log.produce(901, epoch=2, sequence=3),
        log.produce(901, epoch=2, sequence=0, transactional=False),
    ]
    assert sorted(set(errors)) == [0, 45, 47, 48]
    log.compare(0, 1)
    assert log.produce(901, epoch=2) == 0
    log.end(901, commit=False, epoch=2)
    log.compare(0, 2)
    assert log.produce(901, epoch=2, transactional=False) == 0
    control = batch([b"v"], producer=(901, 2, 2), transactional=True)
    assert log.send(with_new_crc(with_bytes(control, 21, struct.pack(">h", 0x30)))) == 87
    log.compare(0, 3)


@pytest.mark.parametrize("seed", range(3))
def test_random_transactions(seed: int, pair_for: PairFor) -> None:
    chance = random.Random(seed)
    configs = {"segment.bytes": str(1 << 20), "index.interval.bytes": "500"}
    log = Partition(pair_for("Fetch", 12), f"any-order-{seed}", configs)
    producers = [901, 902, 903, 904]
    for _ in range(90):
        producer = chance.choice(producers)
        size = chance.choice((1, 20, 400, 90_000))
        match chance.randrange(12):
            case 0:
                log.produce(-1, b"n" * size, transactional=False)
            case 1:
                log.produce(producer, b"m" * size, transactional=False)
            case 2 | 3 | 4:
                log.end(producer, commit=chance.random() < 0.4)
            case 5 if chance.random() < 0.3:
                log.delete(chance.randint(log.list_offset(-2), log.list_offset(-1, 0)))
            case _:
                values = [bytes([chance.randrange(256)]) * size for _ in range(chance.randint(1, 3))]
                log.produce(producer, *values, timestamp=TIME + chance.randrange(100))
        first, last = log.list_offset(-2), log.list_offset(-1, 0)
        log.compare(chance.randint(first, last))
        log.fetch(chance.randint(first, last), max_bytes=chance.choice((1, 300, 5_000, 200_000)))
