"""Batch queries: every way to select records, and writes."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME

from compat_tests.clients.confluent import Confluent
from compat_tests.spark.job import POSITION_AND_VALUE, Job, Sent, numbered, rows

MakeTopic = Callable[..., str]

# A whole hour some days ago: inside every retention, and never ahead of a broker's clock.
_BASE = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(days=2)
_BASE_MS = int(_BASE.timestamp() * 1000)


def expected_rows(records: list[Sent]) -> list[tuple[int, int, str | None]]:
    """Return the expected rows for records of a new topic: partition, offset, value."""
    ends: dict[int, int] = {}
    found = []
    for record in records:
        offset = ends.get(record.partition, 0)
        ends[record.partition] = offset + 1
        found.append((record.partition, offset, record.value))
    return sorted(found, key=lambda row: row[:2])


@pytest.fixture
def thirty(job: Job, make_topic: MakeTopic) -> str:
    """A topic with v0 ... v29 in three partitions; the timestamp of v<n> is n seconds after the base."""
    topic = make_topic(partitions=3)
    job.send(topic, [Sent(f"v{n}", partition=n % 3, timestamp_ms=_BASE_MS + n * 1000) for n in range(30)])
    return topic


def test_a_batch_reads_everything_by_default(job: Job, thirty: str, offset_fetching: str) -> None:
    assert rows(job.read(subscribe=thirty), *POSITION_AND_VALUE) == expected_rows(numbered(0, 30, partitions=3))


def test_a_row_has_every_field_of_its_record(job: Job, make_topic: MakeTopic) -> None:
    topic = make_topic()
    job.send(topic, [Sent("text", "key", timestamp_ms=_BASE_MS), Sent(None, "tombstone", timestamp_ms=_BASE_MS + 1)])

    found = rows(
        job.read(subscribe=topic), "offset", "key", "value", "topic", "partition", "timestamp", "timestampType"
    )

    local = datetime.fromtimestamp(_BASE_MS / 1000)
    assert found == [
        (0, bytearray(b"key"), bytearray(b"text"), topic, 0, local, TIMESTAMP_CREATE_TIME - 1),
        (1, bytearray(b"tombstone"), None, topic, 0, local + timedelta(milliseconds=1), TIMESTAMP_CREATE_TIME - 1),
    ]


def test_offsets_as_json_bound_each_partition(job: Job, thirty: str, offset_fetching: str) -> None:
    found = rows(
        job.read(
            subscribe=thirty,
            startingOffsets={thirty: {"0": 4, "1": -2, "2": 9}},
            endingOffsets={thirty: {"0": 6, "1": 2, "2": -1}},
        ),
        *POSITION_AND_VALUE,
    )

    assert found == [(0, 4, "v12"), (0, 5, "v15"), (1, 0, "v1"), (1, 1, "v4"), (2, 9, "v29")]


def test_one_timestamp_for_all_partitions_bounds_a_batch(job: Job, thirty: str, offset_fetching: str) -> None:
    found = rows(
        job.read(subscribe=thirty, startingTimestamp=_BASE_MS + 10_000, endingTimestamp=_BASE_MS + 13_000),
        *POSITION_AND_VALUE,
    )

    assert found == [(0, 4, "v12"), (1, 3, "v10"), (2, 3, "v11")]


def test_timestamps_as_json_bound_each_partition(job: Job, thirty: str, offset_fetching: str) -> None:
    start = {thirty: {"0": _BASE_MS + 24_000, "1": _BASE_MS + 24_001, "2": _BASE_MS + 29_000}}
    end = {thirty: {"0": _BASE_MS + 27_000, "1": _BASE_MS + 99_000, "2": _BASE_MS + 99_000}}

    found = rows(
        job.read(subscribe=thirty, startingOffsetsByTimestamp=start, endingOffsetsByTimestamp=end), *POSITION_AND_VALUE
    )

    assert found == [(0, 8, "v24"), (1, 8, "v25"), (1, 9, "v28"), (2, 9, "v29")]


def test_a_timestamp_after_the_last_record_fails_or_means_the_end(job: Job, thirty: str) -> None:
    late = {"subscribe": thirty, "startingTimestamp": _BASE_MS + 99_000}

    with pytest.raises(Exception, match="No offset matched"):
        job.read(**late).collect()
    assert rows(job.read(**late, startingOffsetsByTimestampStrategy="latest")) == []


def test_headers_are_read_only_on_request(job: Job, make_topic: MakeTopic) -> None:
    topic = make_topic()
    headers = (("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None))
    job.send(topic, [Sent("with", headers=headers), Sent("without")])

    found = [
        (row.offset, None if row.headers is None else [(header.key, header.value) for header in row.headers])
        for row in job.read(subscribe=topic, includeHeaders="true").orderBy("offset").collect()
    ]

    assert found == [(0, [("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None)]), (1, None)]
    assert "headers" not in job.read(subscribe=topic).columns


def test_min_partitions_splits_ranges_without_losing_or_doubling(job: Job, thirty: str, offset_fetching: str) -> None:
    frame = job.read(subscribe=thirty, minPartitions=9)

    assert frame.rdd.getNumPartitions() == 9
    assert rows(frame, *POSITION_AND_VALUE) == expected_rows(numbered(0, 30, partitions=3))


def test_a_query_subscribes_to_topics_by_pattern(job: Job, make_topic: MakeTopic, offset_fetching: str) -> None:
    first, second = make_topic(), make_topic(partitions=2)
    for topic in (first, second):
        job.send(topic, [Sent(f"of {topic}")])

    found = rows(job.read(subscribePattern=f"{first}|{second}"), "topic", "CAST(value AS STRING)")

    assert found == sorted([(first, f"of {first}"), (second, f"of {second}")])


def test_a_query_subscribes_to_a_list_of_topics(job: Job, make_topic: MakeTopic) -> None:
    first, second = make_topic(), make_topic()
    for topic in (first, second):
        job.send(topic, numbered(0, 2))

    found = rows(job.read(subscribe=f"{first},{second}"), "topic", "offset")

    assert found == sorted([(first, 0), (first, 1), (second, 0), (second, 1)])


def test_assigned_partitions_are_read_and_no_others(job: Job, thirty: str, offset_fetching: str) -> None:
    found = rows(job.read(assign=json.dumps({thirty: [0, 2]})), *POSITION_AND_VALUE)

    assert found == [row for row in expected_rows(numbered(0, 30, partitions=3)) if row[0] != 1]


def test_an_empty_topic_is_an_empty_frame(job: Job, topic: str, offset_fetching: str) -> None:
    assert rows(job.read(subscribe=topic)) == []


def test_the_error_names_an_unknown_topic(job: Job) -> None:
    with pytest.raises(Exception, match=r"UnknownTopicOrPartition|does not host this topic"):
        job.read(subscribe="does-not-exist", **{"kafka.allow.auto.create.topics": "false"}).collect()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_other_clients_read_the_records_of_a_batch_query(job: Job, servers: str, topic: str, codec: str) -> None:
    written = [("k1", "one", 0), ("k2", None, 0), (None, "Ωμέγα", 0)]
    frame = job.spark.createDataFrame(written, "key STRING, value STRING, partition INT").coalesce(1)

    options = {"kafka.bootstrap.servers": servers, "topic": topic, "kafka.compression.type": codec}
    frame.write.format("kafka").options(**options).save()

    found = [(record.key, record.value) for record in Confluent().consume(servers, topic, len(written))]
    assert found == [(b"k1", b"one"), (b"k2", None), (None, "Ωμέγα".encode())]


def test_each_row_names_its_topic_and_headers(job: Job, servers: str, make_topic: MakeTopic) -> None:
    first, second = make_topic(), make_topic()
    frame = job.spark.createDataFrame(
        [(first, "a", [("h", bytearray(b"1")), ("h", bytearray(b"2"))]), (second, "b", None)],
        "topic STRING, value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>",
    )

    frame.write.format("kafka").options(**{"kafka.bootstrap.servers": servers, "includeHeaders": "true"}).save()

    found = [
        [(record.value, record.headers) for record in Confluent().consume(servers, topic, 1)]
        for topic in (first, second)
    ]
    assert found == [[(b"a", (("h", b"1"), ("h", b"2")))], [(b"b", ())]]


def test_ten_thousand_records_are_written_and_read(job: Job, servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    frame = job.spark.range(10_000).selectExpr("CAST(id AS STRING) AS key", "repeat(CAST(id AS STRING), 20) AS value")

    frame.write.format("kafka").options(**{"kafka.bootstrap.servers": servers, "topic": topic}).save()

    found = rows(job.read(subscribe=topic), "CAST(CAST(key AS STRING) AS INT)", "CAST(value AS STRING)")
    assert found == [(number, str(number) * 20) for number in range(10_000)]
