"""Apache Kafka as the oracle: it and `validate` get random batches and message sets, valid and invalid. Both must agree
on the error code, on the records with errors, and on every stored byte.

4.3 gets batches (Produce v9), 3.9 also message sets of magic 0 and 1 (Produce v2).
"""

import re
import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odradek_peers import KAFKA_3_9, KAFKA_4_3, ApacheKafka

from odradek_wire.errors import ErrorCode
from odradek_wire.frames import decode_response, encode_request
from odradek_wire.message import Message
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.records import batch, legacy
from odradek_wire.records.attributes import Compression, TimestampType
from odradek_wire.records.builder import build_batch
from odradek_wire.records.crc import crc32c
from odradek_wire.records.log_validator import Rejection, ValidatedRecords, ValidationRules, validate
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import read_records

pytestmark = [pytest.mark.peers]

R = TypeVar("R", bound=Message)

EXAMPLES = settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
CREATE, APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME
DAY_MS = 86_400_000
NOW = int(time.time() * 1000)

TOPICS: dict[str, tuple[dict[str, str], ValidationRules]] = {
    "plain": ({"message.timestamp.after.max.ms": "3600000"}, ValidationRules(strict=True)),
    "compacted": (
        {"cleanup.policy": "compact", "message.timestamp.after.max.ms": "3600000"},
        ValidationRules(strict=True, compacted=True),
    ),
    "stamped": ({"message.timestamp.type": "LogAppendTime"}, ValidationRules(strict=True, timestamp_type=APPEND)),
    "limited": (
        {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"},
        ValidationRules(strict=True, timestamp_before_max_ms=3_600_000),
    ),
    "gzip": (
        {"compression.type": "gzip", "message.timestamp.after.max.ms": "3600000"},
        ValidationRules(strict=True, compression=Compression.GZIP),
    ),
    "uncompressed": (
        {"compression.type": "uncompressed", "message.timestamp.after.max.ms": "3600000"},
        ValidationRules(strict=True, compression=Compression.NONE),
    ),
}


@dataclass
class Stored:
    offset: int
    log_append_time: int
    batch: bytes


@dataclass
class Refused:
    error: ErrorCode
    message: str | None
    faults: list[tuple[int, str | None]]


class Kafka:
    """A connection to a broker that has one topic of each kind."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self.correlation_id = 0
        topics = [
            CreateTopicsRequest.CreatableTopic(
                name=name,
                num_partitions=1,
                replication_factor=1,
                configs=[
                    CreateTopicsRequest.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()
                ],
            )
            for name, (configs, _) in TOPICS.items()
        ]
        created = self.call(CreateTopicsRequest(topics=topics, timeout_ms=20_000), CreateTopicsResponse, 5)
        assert [topic.error_code for topic in created.topics] == [0] * len(TOPICS)
        for topic in TOPICS:
            while isinstance(self.produce(topic, build_batch([Record(0, NOW, b"k", b"")]), 9), Refused):
                time.sleep(0.05)  # until the leader knows that it is one

    def call(self, request: Message, response: type[R], version: int) -> R:
        self.correlation_id += 1
        frame = encode_request(request, version, self.correlation_id, "oracle")
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", self._receive(4))
        return decode_response(response, version, self._receive(length))[1]

    def _receive(self, count: int) -> bytes:
        received = b""
        while len(received) < count:
            piece = self.socket.recv(count - len(received))
            assert piece, "the broker closed the connection"
            received += piece
        return received

    def produce(self, topic: str, data: bytes | bytearray, version: int) -> Stored | Refused:
        partition = ProduceRequest.PartitionProduceData(index=0, records=bytes(data))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=5000,
            topic_data=[ProduceRequest.TopicProduceData(name=topic, partition_data=[partition])],
        )
        (answer,) = self.call(request, ProduceResponse, version).responses[0].partition_responses
        if answer.error_code:
            faults = [(fault.batch_index, fault.batch_index_error_message) for fault in answer.record_errors]
            return Refused(ErrorCode(answer.error_code), answer.error_message, faults)
        return Stored(answer.base_offset, answer.log_append_time_ms, self.fetch(topic, answer.base_offset))

    def fetch(self, topic: str, offset: int) -> bytes:
        partition = FetchRequest.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[FetchRequest.FetchTopic(topic=topic, partitions=[partition])],
        )
        (answer,) = self.call(request, FetchResponse, 4).responses[0].partitions
        return bytes(answer.records or b"")


def broker(version: str) -> Iterator[Kafka]:
    with ApacheKafka(version) as node:
        yield Kafka(node.port)


@pytest.fixture(scope="module")
def kafka_4_3() -> Iterator[Kafka]:
    yield from broker(KAFKA_4_3)


@pytest.fixture(scope="module")
def kafka_3_9() -> Iterator[Kafka]:
    yield from broker(KAFKA_3_9)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    keys = st.sampled_from([b"key", b"key", b"key", None])
    ages = st.sampled_from([0, 0, 0, 1, -1, DAY_MS, -DAY_MS])
    drawn = draw(st.lists(st.tuples(keys, ages, st.none() | st.binary(max_size=8)), min_size=1, max_size=4))
    without = draw(st.integers(0, 5)) == 0
    return [Record(index, -1 if without else NOW + age, key, value) for index, (key, age, value) in enumerate(drawn)]


# Position, layout and value of a wrong field.
WRONG_FIELDS: list[tuple[int, str, int]] = [
    (0, ">q", 5),
    (8, ">i", 10),
    (8, ">i", 40),
    (8, ">i", -1),
    (8, ">i", 1 << 30),
    (12, ">i", 77),
    (16, ">b", 3),
    (16, ">b", -1),
    (17, ">I", 1),
    (21, ">h", 5),
    (21, ">h", 0x20),
    (21, ">h", 0x100),
    (23, ">i", -1),
    (23, ">i", 7),
    (35, ">q", NOW - DAY_MS),
    (35, ">q", NOW + DAY_MS),
    (35, ">q", -5),
    (43, ">q", 9),
    (57, ">i", 0),
    (57, ">i", -1),
    (57, ">i", 1),
]


@st.composite
def produced_batches(draw: st.DrawFn) -> bytes:
    stamped = draw(st.integers(0, 7)) == 0
    data = build_batch(
        draw(record_lists()),
        compression=draw(st.sampled_from(Compression)),
        timestamp_type=APPEND if stamped else CREATE,
        log_append_time=draw(st.sampled_from([NOW, -1, NOW + DAY_MS])),
    )
    if draw(st.integers(0, 2)) == 0:
        position, layout, value = draw(st.sampled_from(WRONG_FIELDS))
        struct.pack_into(layout, data, position, value)
        if position != 17:
            data[17:21] = struct.pack(">I", crc32c(data[21:]))
    match draw(st.integers(0, 15)):
        case 0:
            return bytes(data[: draw(st.integers(0, len(data)))])
        case 1:
            return bytes(data) + draw(st.sampled_from([b"\1\2\3", bytes(20), bytes(data), bytes(data[:70])]))
        case 2 | 3:
            body = bytes(data[61:])
            kept = draw(st.integers(0, len(body)))
            data = data[:61] + draw(st.sampled_from([body[:kept], body + b"\0", b"garbage!!"]))
            data[8:12] = struct.pack(">i", len(data) - 12)
            data[17:21] = struct.pack(">I", crc32c(data[21:]))
    return bytes(data)


def without_clock(message: str | None) -> str | None:
    """Return a message without the range that depends on the broker's clock, and without Kafka's text for a record."""
    return None if message is None else re.sub(r"within .*|in message .*?\)", "", message)


# For damaged compressed data Kafka's error depends on the place of the damage: its decompressor fails, or the
# decompressed data are no valid record.
ERRORS_OF_DAMAGED_DATA = {ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD}


def compare(topic: str, data: bytes, theirs: Stored | Refused) -> None:
    _, rules = TOPICS[topic]
    now = theirs.log_append_time if isinstance(theirs, Stored) and theirs.log_append_time >= 0 else NOW
    ours = validate(bytearray(data), rules, now, partition=f"{topic}-0")
    if isinstance(theirs, Refused):
        assert isinstance(ours, Rejection), f"Kafka: {theirs}"
        if theirs.error in ERRORS_OF_DAMAGED_DATA and ours.error in ERRORS_OF_DAMAGED_DATA and not theirs.faults:
            return
        assert ours.error is theirs.error
        if theirs.faults:
            assert (ours.message, [(index, without_clock(text)) for index, text in ours.record_errors]) == (
                theirs.message,
                [(index, without_clock(text)) for index, text in theirs.faults],
            )
        return
    assert isinstance(ours, ValidatedRecords), f"Kafka accepts, we: {ours}"
    stored = batch.read_header(theirs.batch)
    if ours.header is None:
        return  # nothing was stored
    batch.set_offset_and_leader_epoch(
        ours.records,  # type: ignore[arg-type]  # data was writable
        ours.header,
        stored.base_offset,
        stored.partition_leader_epoch,
    )
    placed = batch.read_header(ours.records)
    assert list(read_records(ours.records, placed)) == list(read_records(theirs.batch, stored))
    if ours.was_rewritten and placed.is_compressed:
        # Two compressors need not give the same bytes.
        assert described(placed) == described(stored)
    else:
        assert bytes(ours.records).hex() == theirs.batch[: stored.end].hex()


def described(header: batch.RecordBatchHeader) -> tuple[int, ...]:
    return tuple(
        value
        for name, value in zip(header.__annotations__, header.fields(), strict=False)
        if name not in ("batch_length", "crc")
    )


@EXAMPLES
@given(st.sampled_from(list(TOPICS)), produced_batches())
def test_kafka_4_3_agrees_on_batches(kafka_4_3: Kafka, topic: str, data: bytes) -> None:
    if len(data) >= 17 and data[16] in (0, 1):
        return  # the handler of Produce refuses it
    compare(topic, data, kafka_4_3.produce(topic, data, 9))


@st.composite
def produced_message_sets(draw: st.DrawFn) -> bytes:
    magic = draw(st.sampled_from([0, 1]))
    stamped = draw(st.integers(0, 7)) == 0
    data = legacy.build_message_set(
        draw(record_lists()),
        magic=magic,
        compression=draw(st.sampled_from(OLD_CODECS)),
        timestamp_type=APPEND if stamped else CREATE,
        log_append_time=NOW,
    )
    match draw(st.integers(0, 9)):
        case 0:
            data[draw(st.integers(12, len(data) - 1))] ^= 0x10
        case 1:
            return bytes(data) * 2
        case 2:
            return bytes(data) + bytes(data)[:-3]
    return bytes(data)


@EXAMPLES
@given(st.sampled_from(list(TOPICS)), produced_message_sets())
def test_kafka_3_9_agrees_on_message_sets(kafka_3_9: Kafka, topic: str, data: bytes) -> None:
    compare(topic, data, kafka_3_9.produce(topic, data, 2))
