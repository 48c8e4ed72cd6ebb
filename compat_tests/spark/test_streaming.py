"""Streaming queries: bounded, unbounded and restarted ones, and streams that write."""

import json
from collections.abc import Callable
from typing import Any

from compat_tests.clients.confluent import Confluent
from compat_tests.spark.job import Job, numbered, rows
from compat_tests.spark.queries import input_rows, values, wait_for_rows

MakeTopic = Callable[..., str]


def test_a_stopped_query_resumes_from_its_checkpoint(job: Job, make_topic: MakeTopic, offset_fetching: str) -> None:
    topic = make_topic(partitions=3)
    job.send(topic, numbered(0, 100, partitions=3))
    first = job.into_parquet(subscribe=topic)
    wait_for_rows(first, job, 100)
    job.send(topic, numbered(100, 150, partitions=3))
    first.stop()
    job.send(topic, numbered(150, 200, partitions=3))

    second = job.into_parquet(subscribe=topic)
    wait_for_rows(second, job, 200)
    second.stop()

    assert values(job) == [f"v{number}" for number in range(200)]


def test_available_now_reads_existing_records_and_ends(job: Job, make_topic: MakeTopic, offset_fetching: str) -> None:
    topic = make_topic(partitions=2)
    job.send(topic, numbered(0, 50, partitions=2))
    job.available_into_parquet(subscribe=topic)
    job.send(topic, numbered(50, 70, partitions=2))
    job.available_into_parquet(subscribe=topic)

    idle = job.available_into_parquet(subscribe=topic)

    assert values(job) == [f"v{number}" for number in range(70)]
    assert input_rows(idle) == []


def test_max_offsets_per_trigger_bounds_every_batch(job: Job, make_topic: MakeTopic, offset_fetching: str) -> None:
    topic = make_topic(partitions=2)
    job.send(topic, numbered(0, 100, partitions=2))

    query = job.available_into_parquet(subscribe=topic, maxOffsetsPerTrigger=40)

    assert values(job) == [f"v{number}" for number in range(100)]
    assert input_rows(query) == [40, 40, 20]


def test_a_stream_from_latest_reads_new_records_only(job: Job, topic: str) -> None:
    job.send(topic, numbered(0, 10))
    query = job.into_parquet(subscribe=topic, startingOffsets="latest")
    query.processAllAvailable()
    job.send(topic, numbered(10, 20))
    wait_for_rows(query, job, 10)
    query.stop()

    assert values(job) == [f"v{number}" for number in range(10, 20)]


def test_a_stream_over_a_pattern_finds_new_partitions(job: Job, make_topic: MakeTopic, offset_fetching: str) -> None:
    first = make_topic()
    job.send(first, numbered(0, 5))
    pattern = first.rsplit("-", 1)[0] + "-.*"
    job.available_into_parquet(subscribePattern=pattern)
    second = make_topic(partitions=2)
    job.send(second, numbered(5, 11, partitions=2))
    job.available_into_parquet(subscribePattern=pattern)

    expected = [(first, 0, offset, f"v{offset}") for offset in range(5)]
    expected += [(second, number % 2, (number - 5) // 2, f"v{number}") for number in range(5, 11)]
    assert rows(job.written(), "topic", "partition", "offset", "value") == sorted(expected)


def test_a_stream_writes_to_a_topic(job: Job, servers: str, make_topic: MakeTopic) -> None:
    source, target = make_topic(), make_topic()
    job.send(source, numbered(0, 20))

    def copy() -> None:
        frame = job.stream(subscribe=source).selectExpr("CAST(offset AS STRING) AS key", "value")
        sink = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", target)
        sink.option("checkpointLocation", job.checkpoint).trigger(availableNow=True).start().awaitTermination()

    copy()
    job.send(source, numbered(20, 30))
    copy()

    found = [(record.key, record.value) for record in Confluent().consume(servers, target, 30)]
    assert found == [(b"%d" % number, b"v%d" % number) for number in range(30)]
    assert job.offsets(target) == (0, 30)


def test_progress_has_the_end_offset(job: Job, topic: str) -> None:
    job.send(topic, numbered(0, 7))
    query = job.available_into_parquet(subscribe=topic)

    last: Any = query.lastProgress
    reached = last["sources"][0]["endOffset"]
    # Spark 4 gives it as text, 3.5 as the object.
    assert (json.loads(reached) if isinstance(reached, str) else reached) == {topic: {"0": 7}}
