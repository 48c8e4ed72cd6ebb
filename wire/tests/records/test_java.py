"""Kafka's own record classes, of 4.3 and 3.9, read the records that we write, and we read theirs.

One JVM for each release answers all questions over a pipe; RecordsPeer.java describes them.
"""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odradek_peers import KAFKA_3_9, KAFKA_4_3, libs

from odradek_wire.records import batch, conversion, legacy
from odradek_wire.records.attributes import Compression, TimestampType
from odradek_wire.records.builder import build_batch
from odradek_wire.records.control import end_txn_marker_batch
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import read_records

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

OLD_CODECS = [Compression.NONE, Compression.GZIP, Compression.SNAPPY, Compression.LZ4]
EXAMPLES = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
CREATE, APPEND = TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME


class JavaError(Exception):
    pass


class Java:
    """Kafka's record classes of one release."""

    def __init__(self, version: str, directory: Path) -> None:
        source = Path(__file__).with_name("RecordsPeer.java").read_text()
        if version == KAFKA_3_9:
            source = source.replace("org.apache.kafka.common.record.internal", "org.apache.kafka.common.record")
        program = directory / "RecordsPeer.java"
        program.write_text(source)
        self.process = subprocess.Popen(
            ["java", "-XX:+UseSerialGC", "-Xmx512M", "-cp", f"{libs(version)}/*", str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, *words: object) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        kind, _, answer = self.process.stdout.readline().rstrip("\n").partition(" ")
        if kind != "ok":
            raise JavaError(answer)
        return answer

    def read(self, data: bytes | bytearray) -> list[tuple[list[str], list[Record]]]:
        return parsed(self.ask("read", data.hex()))

    def write(
        self,
        records: list[Record],
        *,
        magic: int = 2,
        compression: Compression = Compression.NONE,
        timestamp_type: TimestampType = CREATE,
        append_time: int = -1,
        producer: tuple[int, int, int] = (-1, -1, -1),
        transactional: bool = False,
        leader_epoch: int = -1,
    ) -> bytes:
        name = {TimestampType.CREATE_TIME: "CreateTime", TimestampType.LOG_APPEND_TIME: "LogAppendTime"}[timestamp_type]
        if magic == 0:
            name = "NoTimestampType"
        return bytes.fromhex(
            self.ask(
                "write",
                magic,
                int(compression),
                name,
                append_time,
                records[0].offset,
                *producer,
                str(transactional).lower(),
                leader_epoch,
                "|".join(map(printed, records)),
            )
        )

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


def hexed(content: bytes | None) -> str:
    return "-" if content is None else content.hex()


def printed(record: Record) -> str:
    headers = "&".join(f"{name.encode().hex()}={hexed(value)}" for name, value in record.headers)
    return f"{record.offset},{record.timestamp},{hexed(record.key)},{hexed(record.value)},{headers}"


def parsed(answer: str) -> list[tuple[list[str], list[Record]]]:
    batches = []
    for text in filter(None, answer.split(";")):
        header, *records = text.split("|")
        batches.append((header.split(","), [parsed_record(record) for record in records]))
    return batches


def parsed_record(text: str) -> Record:
    offset, timestamp, key, value, headers = text.split(",")
    pairs = [header.split("=") for header in filter(None, headers.split("&"))]
    return Record(
        int(offset),
        int(timestamp),
        unhexed(key),
        unhexed(value),
        tuple((bytes.fromhex(name).decode(), unhexed(content)) for name, content in pairs),
    )


def unhexed(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text)


@pytest.fixture(scope="module", params=[KAFKA_4_3, KAFKA_3_9])
def java(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Java]:
    peer = Java(request.param, tmp_path_factory.mktemp("java"))
    yield peer
    peer.close()


CONTENT = st.none() | st.binary(max_size=150) | st.sampled_from([b"repeated " * 5000, bytes(70_000)])
HEADERS = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=10)), max_size=3).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn, *, old: bool = False) -> list[Record]:
    offset = draw(st.integers(0, 1 << 40))
    records = []
    for _ in range(draw(st.integers(1, 8))):
        records.append(
            Record(offset, draw(st.integers(0, 1 << 50)), draw(CONTENT), draw(CONTENT), () if old else draw(HEADERS))
        )
        offset += draw(st.integers(1, 5))
    return records


@EXAMPLES
@given(record_lists(), st.sampled_from(Compression), st.booleans(), st.sampled_from([CREATE, APPEND]))
def test_java_reads_our_batches(
    java: Java, records: list[Record], codec: Compression, transactional: bool, timestamp_type: TimestampType
) -> None:
    data = build_batch(
        records,
        compression=codec,
        timestamp_type=timestamp_type,
        log_append_time=1234,
        producer_id=5,
        producer_epoch=1,
        base_sequence=7,
        is_transactional=transactional,
        partition_leader_epoch=3,
    )
    ((header, found),) = java.read(data)
    stamped = timestamp_type is APPEND
    latest = 1234 if stamped else max(record.timestamp for record in records)
    assert header == [
        *map(str, (2, records[0].offset, records[-1].offset, int(codec), int(timestamp_type), latest, 5, 1, 7)),
        str(transactional).lower(),
        "false",
        "3",
    ]
    assert found == ([record._replace(timestamp=1234) for record in records] if stamped else records)


@EXAMPLES
@given(record_lists(), st.sampled_from(Compression), st.booleans())
def test_batches_of_java_are_read(java: Java, records: list[Record], codec: Compression, transactional: bool) -> None:
    data = java.write(records, compression=codec, producer=(5, 1, 7), transactional=transactional, leader_epoch=3)
    header = batch.read_header(data)
    batch.check_crc(data, header)
    assert list(read_records(data, header)) == records
    assert (header.base_offset, header.last_offset, header.count) == (
        records[0].offset,
        records[-1].offset,
        len(records),
    )
    assert (header.compression, header.is_transactional, header.partition_leader_epoch) == (codec, transactional, 3)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 7)
    if codec is Compression.NONE:
        assert data == build_batch(
            records,
            producer_id=5,
            producer_epoch=1,
            base_sequence=7,
            is_transactional=transactional,
            partition_leader_epoch=3,
        )


@EXAMPLES
@given(record_lists(old=True), st.sampled_from(OLD_CODECS), st.sampled_from([0, 1]), st.sampled_from([CREATE, APPEND]))
def test_java_reads_our_message_sets(
    java: Java, records: list[Record], codec: Compression, magic: int, timestamp_type: TimestampType
) -> None:
    data = legacy.build_message_set(
        records, magic=magic, compression=codec, timestamp_type=timestamp_type, log_append_time=1234
    )
    found = [record for _, group in java.read(data) for record in group]
    assert found == list(legacy.read_message_set(data))
    assert [record._replace(timestamp=0) for record in found] == [record._replace(timestamp=0) for record in records]


@EXAMPLES
@given(record_lists(old=True), st.sampled_from(OLD_CODECS), st.sampled_from([0, 1]), st.sampled_from([CREATE, APPEND]))
def test_message_sets_of_java_are_read(
    java: Java, records: list[Record], codec: Compression, magic: int, timestamp_type: TimestampType
) -> None:
    stamp = {"timestamp_type": timestamp_type} if magic else {}
    data = java.write(
        records,
        magic=magic,
        compression=codec,
        append_time=1234 if stamp and timestamp_type is APPEND else -1,
        **stamp,  # type: ignore[arg-type]
    )
    expected = [record for _, group in java.read(data) for record in group]
    assert list(legacy.read_message_set(data)) == expected
    if codec is Compression.NONE:
        assert data == legacy.build_message_set(
            records, magic=magic, timestamp_type=timestamp_type, log_append_time=1234
        )


@pytest.mark.parametrize("magic", [0, 1])
def test_lz4_of_java_has_the_header_checksum_of_its_magic(java: Java, magic: int) -> None:
    records = [Record(0, -1 if magic == 0 else 5, None, b"x" * 1000)]
    (wrapper,) = legacy.iterate(java.write(records, magic=magic, compression=Compression.LZ4))
    (ours,) = legacy.iterate(legacy.build_message_set(records, magic=magic, compression=Compression.LZ4))
    assert wrapper.value is not None
    assert ours.value is not None
    assert wrapper.value[:7] == ours.value[:7]


@pytest.mark.parametrize("level", [1, 5, 9, 17])
def test_java_reads_lz4_of_every_level(java: Java, level: int) -> None:
    records = [Record(0, 5, None, b"".join(b"%d," % number for number in range(30_000)))]
    data = build_batch(records, compression=Compression.LZ4, compression_level=level)
    assert java.read(data)[0][1] == records


def test_java_reads_a_file_of_all_formats(java: Java, tmp_path: Path) -> None:
    records = [Record(index, 1000 + index, b"key", b"value" * index) for index in range(4)]
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(
        legacy.build_message_set(records[:1], magic=0)
        + legacy.build_message_set(records[1:2], magic=1, compression=Compression.SNAPPY)
        + build_batch(records[2:3], compression=Compression.ZSTD)
        + end_txn_marker_batch(
            commit=True, coordinator_epoch=4, producer_id=1, producer_epoch=0, timestamp=9, base_offset=3
        )
    )
    found = parsed(java.ask("file", file))
    assert [(header[0], header[10]) for header, _ in found] == [
        ("0", "false"),
        ("1", "false"),
        ("2", "false"),
        ("2", "true"),
    ]
    assert [record for _, group in found for record in group][:3] == [
        records[0]._replace(timestamp=-1),
        records[1],
        records[2],
    ]


def test_java_refuses_a_batch_with_a_wrong_crc(java: Java) -> None:
    data = build_batch([Record(0, 5, None, b"value")])
    data[-1] ^= 1
    with pytest.raises(JavaError, match="Corrupt"):
        java.read(data)


@EXAMPLES
@given(
    st.lists(st.tuples(record_lists(), st.sampled_from(OLD_CODECS), st.booleans()), min_size=1, max_size=3),
    st.sampled_from([0, 1]),
    st.integers(0, 10),
)
def test_down_conversion_gives_javas_bytes(
    java: Java, batches: list[tuple[list[Record], Compression, bool]], magic: int, skipped: int
) -> None:
    if not hasattr(java, "can_down_convert"):
        java.can_down_convert = has_down_conversion(java)  # type: ignore[attr-defined]
    if not java.can_down_convert:  # type: ignore[attr-defined]
        return  # Kafka 4 has no down-conversion
    data = bytearray()
    for records, codec, control in batches:
        if control:
            data += end_txn_marker_batch(
                commit=True, coordinator_epoch=1, producer_id=1, producer_epoch=0, timestamp=5, base_offset=1
            )
        data += build_batch(records, compression=codec)
    first_offset = batches[0][0][0].offset + skipped
    ours = conversion.down_convert(data, magic, first_offset=first_offset)
    theirs = bytes.fromhex(java.ask("down", data.hex(), magic, first_offset))
    assert list(legacy.read_message_set(ours)) == list(legacy.read_message_set(theirs))
    mine, other = list(legacy.iterate(ours)), list(legacy.iterate(theirs))
    assert [message[:4] for message in mine] == [message[:4] for message in other]
    if all(codec is Compression.NONE for _, codec, _ in batches):
        assert ours == theirs


def has_down_conversion(java: Java) -> bool:
    try:
        java.ask("down", build_batch([Record(0, 0, None, b"")]).hex(), 1, 0)
    except JavaError as error:
        if "NoSuchMethod" in str(error):
            return False
        raise
    return True
