"""The whole job over a real broker: Odradek and Apache Kafka have the same result."""

import json
import threading
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from odradek_pipeline.job import PipelineFailed, Summary, run
from odradek_pipeline.pipeline_config import PipelineConfig
from odradek_pipeline.progress import BatchProgress

_START_MS = 1_790_000_040_000  # 2026-09-21T14:14:00Z, a whole minute
_numbers = count()


class Counted(NamedTuple):
    """A final count: page, minute since the start, views."""

    page: str
    minute: int
    views: int


@pytest.fixture
def config(servers: str, tmp_path: Path) -> PipelineConfig:
    """The configuration of a job over new topics that ends at the end of its topic."""
    number = next(_numbers)
    config = PipelineConfig(
        bootstrap_servers=servers,
        input_topic=f"views-{number}",
        output_topic=f"counts-{number}",
        output_directory=str(tmp_path / "counts"),
        checkpoint_directory=str(tmp_path / "checkpoint"),
        lateness_ms=10_000,
        trigger_ms=200,
        until_caught_up=True,
    )
    topics = [NewTopic(config.input_topic, 3, 1, config={"retention.ms": "-1"})]
    topics += [NewTopic(name, 1, 1) for name in (config.output_topic, config.rejected_topic)]
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics(topics).values():
        created.result(60)
    return config


def view(page: str, seconds: float) -> str:
    """A page view at a number of seconds after the start."""
    ms = _START_MS + round(seconds * 1000)
    stamp = f"2026-09-21T{ms // 3_600_000 % 24:02}:{ms // 60_000 % 60:02}:{ms // 1000 % 60:02}.{ms % 1000:03}Z"
    return json.dumps({"page": page, "viewed_at": stamp})


def send(config: PipelineConfig, values: list[str]) -> None:
    """Send values to the partitions in turn, with timestamps just after the start."""
    producer = Producer({"bootstrap.servers": config.bootstrap_servers})
    for number, value in enumerate(values):
        producer.produce(config.input_topic, value, partition=number % 3, timestamp=_START_MS)
    assert producer.flush(60) == 0


def read(config: PipelineConfig, topic: str) -> list[tuple[str | None, str, dict[str, str]]]:
    """Key, value and headers of each record in a topic of one partition."""
    consumer = Consumer({"bootstrap.servers": config.bootstrap_servers, "group.id": "unused"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[str | None, str, dict[str, str]]] = []
    while len(found) < end:
        for message in consumer.consume(end - len(found), timeout=10):
            key, value = message.key(), message.value()
            assert value is not None
            headers = {name: str(text, "utf-8") for name, text in message.headers() or []}
            found.append((key.decode() if key is not None else None, value.decode(), headers))
    consumer.close()
    return found


def in_parquet(config: PipelineConfig, spark: SparkSession) -> list[Counted]:
    """The counts in the files, with duplicates."""
    columns = ("page", "CAST(window_start AS BIGINT)", "CAST(window_end AS BIGINT)", "views")
    counts = []
    for page, start, end, number in spark.read.parquet(config.output_directory).selectExpr(*columns).collect():
        assert end == start + 60
        counts.append(Counted(page, (start - _START_MS // 1000) // 60, number))
    return sorted(counts)


def in_topic(config: PipelineConfig) -> list[Counted]:
    """The last value of each key in the output topic."""
    last = {key: json.loads(value) for key, value, _ in read(config, config.output_topic)}
    return sorted(Counted(each["page"], int(each["window_start"][14:16]) - 14, each["views"]) for each in last.values())


_FIRST = [view("/a", 1), view("/b", 2), "{broken", view("/a", 59.999), view("/a", 60), view("/b", 75)]
_SECOND = [view("/a", 61), view("/b", 130), view("/a", 3_000), view("", 1)]
_END = [view("/end", 600)]
_COUNTS = [Counted("/a", 0, 2), Counted("/a", 1, 2), Counted("/b", 0, 1), Counted("/b", 1, 1), Counted("/b", 2, 1)]


def test_counts_reach_parquet_and_the_topic(config: PipelineConfig, spark: SparkSession) -> None:
    send(config, _FIRST + _SECOND[:2] + _SECOND[3:] + _END)

    summary = run(config, spark)

    assert in_parquet(config, spark) == _COUNTS
    assert in_topic(config) == _COUNTS
    assert len(read(config, config.output_topic)) == len(_COUNTS)
    assert sorted((value, headers["rejected.reason"]) for _, value, headers in read(config, config.rejected_topic)) == [
        (view("", 1), "no page"),
        ("{broken", "not a JSON object"),
    ]
    assert summary == Summary(records=10, rejected=2, late=0, batches=summary.batches)


def test_a_second_run_continues_from_the_checkpoint(config: PipelineConfig, spark: SparkSession) -> None:
    send(config, _FIRST)
    first = run(config, spark)
    send(config, _SECOND[:2] + _END)
    second = run(config, spark)
    third = run(config, spark)

    assert (first.records, second.records, third.records) == (len(_FIRST), 3, 0)
    assert in_parquet(config, spark) == _COUNTS
    assert in_topic(config) == _COUNTS


def test_a_view_of_a_final_window_is_late_and_changes_no_count(config: PipelineConfig, spark: SparkSession) -> None:
    send(config, _FIRST + _SECOND[:2] + _END)
    run(config, spark)
    send(config, [view("/a", 5), view("/a", 6)])

    assert run(config, spark).late == 1  # one group: a page in a window
    assert in_parquet(config, spark) == _COUNTS


def test_a_batch_repeated_after_a_crash_writes_each_count_once(config: PipelineConfig, spark: SparkSession) -> None:
    send(config, _FIRST + _SECOND[:2] + _END)
    run(config, spark)
    commits = Path(config.checkpoint_directory, "views", "commits")
    last = max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    last.unlink()  # as after a crash between writing and committing
    (commits / f".{last.name}.crc").unlink()

    run(config, spark)

    assert in_parquet(config, spark) == _COUNTS
    assert in_topic(config) == _COUNTS
    assert len(read(config, config.output_topic)) == 2 * len(_COUNTS)


def test_a_running_job_reports_progress_and_stops(config: PipelineConfig, spark: SparkSession) -> None:
    running = PipelineConfig(**{**_fields(config), "until_caught_up": False})
    stop = threading.Event()
    shown: list[BatchProgress] = []

    def on_progress(batch: BatchProgress) -> None:
        shown.append(batch)
        if batch.query == "views" and batch.watermark.startswith("2026-09-21T14:23:50"):
            stop.set()

    send(config, _FIRST + _SECOND[:2] + _END)
    summary = run(running, spark, on_progress=on_progress, stop=stop)

    assert sum(batch.input_rows for batch in shown if batch.query == "views") == summary.records == 9
    assert in_parquet(config, spark) == _COUNTS
    assert not spark.streams.active


def test_a_missing_topic_fails_with_its_reason_in_one_line(config: PipelineConfig, spark: SparkSession) -> None:
    missing = PipelineConfig(**{**_fields(config), "input_topic": "does-not-exist"})

    with pytest.raises(PipelineFailed, match="UnknownTopicOrPartition") as failure:
        run(missing, spark)

    assert "\n" not in str(failure.value)
    assert not spark.streams.active


def _fields(config: PipelineConfig) -> dict[str, object]:
    return {name: getattr(config, name) for name in PipelineConfig.__slots__}
