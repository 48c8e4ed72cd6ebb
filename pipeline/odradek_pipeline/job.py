"""How the job runs: two streaming queries over the same topic, their sinks, checkpoints, progress and end.

`views` counts; each count is final when it is written (append mode) and goes to

- Parquet, `<output_directory>/batch_id=<n>/`, overwritten when Spark repeats batch n after a failure: each count is
  there exactly once;
- the output topic, at least once: a repeated batch writes the same keys and values again (Spark's Kafka writer knows no
  transactions), so the last value of each key is each count exactly once.

Both are written from one pass over the batch, Parquet first: what the topic shows is already in the files. Counts of
windows that are still open stay in the checkpoint's state; they are not lost at a stop, but not written either.

`rejected` copies every record that is not a view to the rejected topic, untouched, at least once. It is a query of its
own, because a record that is not counted cannot pass an aggregation. Its checkpoint is its own as well.

A run that finds checkpoints goes on from them. Source and sink topics, windows and lateness must then stay the same.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from odradek_pipeline.config import PipelineConfig
from odradek_pipeline.page_views import as_records, as_rejected_records, classified, views, views_per_window
from odradek_pipeline.progress import BatchProgress, executed, read_progress

_POLL_SECONDS = 0.1
_STOP_SECONDS = 60.0

OnProgress = Callable[[BatchProgress], None]


class PipelineFailed(Exception):
    """A query ended with an error; the message is the innermost cause in one line, the rest is the `__cause__`."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What one run did: records read and refused, late groups dropped, micro-batches of both queries."""

    records: int = 0
    rejected: int = 0
    late: int = 0
    batches: int = 0

    def with_batch(self, batch: BatchProgress) -> "Summary":
        """Both queries read every record; they are counted where they are counted as views."""
        counts = batch.query == "views"
        return Summary(
            records=self.records + (batch.input_rows if counts else 0),
            rejected=self.rejected + (batch.rejected if counts else 0),
            late=self.late + batch.late,
            batches=self.batches + 1,
        )


def run(
    config: PipelineConfig,
    spark: SparkSession,
    *,
    on_progress: OnProgress = lambda batch: None,
    stop: threading.Event | None = None,
) -> Summary:
    """Run the job until `stop` is set, or until it has caught up if the configuration says so.

    Blocks. A stop lets a micro-batch that has begun finish (up to a minute), so that nothing is done twice. Raises
    PipelineFailed when a query fails; the other one is stopped then, and both go on from their checkpoints next time.
    """
    stop = stop or threading.Event()
    reports: list[_Reports] = []
    summary = Summary()
    try:
        for start in (_start_rejected, _start_views):
            reports.append(_Reports(start(config, spark)))
        while not stop.is_set() and all(report.query.isActive for report in reports):
            summary = _tell(reports, summary, on_progress)
            stop.wait(_POLL_SECONDS)
        if config.until_caught_up and not stop.is_set():
            _await_all([report.query for report in reports], stop)
    except PySparkException as failure:
        raise PipelineFailed(_one_line(failure)) from failure
    finally:
        for report in reports:
            _stop(report.query)
    for report in reports:
        cause = report.query.exception()
        if cause is not None:
            raise PipelineFailed(_one_line(cause)) from cause
    return _tell(reports, summary, on_progress)


def read_topic(config: PipelineConfig, spark: SparkSession) -> DataFrame:
    """The input topic as a stream: the columns of Spark's Kafka source."""
    options = {
        "kafka.bootstrap.servers": config.bootstrap_servers,
        "subscribe": config.input_topic,
        "startingOffsets": config.starting_offsets,
        "failOnDataLoss": str(config.fail_on_data_loss).lower(),
        **_client_options(config),
    }
    if config.max_offsets_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(config.max_offsets_per_trigger)
    return spark.readStream.format("kafka").options(**options).load()


def _start_views(config: PipelineConfig, spark: SparkSession) -> StreamingQuery:
    records = classified(read_topic(config, spark), config.ahead_ms)
    observed = records.observe("input", F.count("reason").alias("rejected"))
    counts = views_per_window(views(observed), config.window_ms, config.lateness_ms)

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        try:
            # The count also computes every partition, without which Spark would not commit the batch's state.
            if batch.count() == 0:
                return
            batch.coalesce(1).write.mode("overwrite").parquet(f"{config.output_directory}/batch_id={batch_id}")
            as_records(batch).write.format("kafka").options(**_to(config, config.output_topic)).save()
        finally:
            batch.unpersist()

    return _start(counts.writeStream.foreachBatch(write), config, "views")


def _start_rejected(config: PipelineConfig, spark: SparkSession) -> StreamingQuery:
    rejected = as_rejected_records(classified(read_topic(config, spark), config.ahead_ms))
    sink = rejected.writeStream.format("kafka").options(**_to(config, config.rejected_topic))
    return _start(sink, config, "rejected")


def _start(sink: DataStreamWriter, config: PipelineConfig, name: str) -> StreamingQuery:
    writer = (
        sink.queryName(name).outputMode("append").option("checkpointLocation", f"{config.checkpoint_directory}/{name}")
    )
    if config.until_caught_up:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{config.trigger_ms} milliseconds").start()


def _to(config: PipelineConfig, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": config.bootstrap_servers, "topic": topic, **_client_options(config)}


def _client_options(config: PipelineConfig) -> dict[str, str]:
    return {f"kafka.{name.removeprefix('kafka.')}": value for name, value in config.kafka_options.items()}


class _Reports:
    """The reports of one query, each micro-batch once: Spark keeps the last hundred, and repeats itself when idle."""

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query
        self._told = -1

    def new(self) -> Iterator[BatchProgress]:
        for report in self.query.recentProgress:
            # PySpark 3.5 gives the JSON object itself, 4.0 a wrapper whose fields are typed.
            progress: Mapping[str, Any] = json.loads(report.json) if hasattr(report, "json") else report
            if executed(progress) and progress["batchId"] > self._told:
                self._told = progress["batchId"]
                yield read_progress(progress)


def _tell(reports: list[_Reports], summary: Summary, on_progress: OnProgress) -> Summary:
    for report in reports:
        for batch in report.new():
            on_progress(batch)
            summary = summary.with_batch(batch)
    return summary


def _await_all(queries: list[StreamingQuery], stop: threading.Event) -> None:
    """One has ended because it has caught up, or failed; only in the first case the others may finish as well."""
    while any(query.isActive for query in queries) and not stop.is_set():
        if any(query.exception() is not None for query in queries if not query.isActive):
            return
        stop.wait(_POLL_SECONDS)


def _stop(query: StreamingQuery) -> None:
    """End it between two micro-batches if one ends in time, else in the middle (which the checkpoint also survives)."""
    deadline = time.monotonic() + _STOP_SECONDS
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    query.stop()


def _one_line(failure: BaseException) -> str:
    """Spark wraps its causes several times and adds a plan: the last `Caused by` and its first line say what it is."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else (lines[0] if lines else type(failure).__name__)
