"""The two streaming queries of the job, over the same topic: their sinks, checkpoints, progress and end.

The query `views` counts. It writes a count when the count is final (append mode), to

- Parquet, `<output_directory>/batch_id=<n>/`, which Spark overwrites when it repeats batch n after a failure, so that
  each count is there exactly once;
- the output topic, at least once: a repeated batch writes the same keys and values again, because Spark's Kafka writer
  has no transactions. The last value of each key has each count exactly once.

One pass over the batch writes both, Parquet first, so every count in the topic is also in the files. The counts of open
windows stay in the checkpoint's state: a stop neither loses nor writes them.

The query `rejected` copies every record that is not a view to the rejected topic, unchanged, at least once. It is a
separate query, with its own checkpoint, because the aggregation of `views` drops such records.

A run with existing checkpoints continues from them. Topics, windows and lateness must then stay the same.
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

from odradek_pipeline.page_views import as_records, as_rejected_records, classified, views, views_per_window
from odradek_pipeline.pipeline_config import PipelineConfig
from odradek_pipeline.progress import BatchProgress, executed, read_progress

_POLL_SECONDS = 0.1
_STOP_SECONDS = 60.0

OnProgress = Callable[[BatchProgress], None]


class PipelineFailed(Exception):
    """A query ended with an error. The message is its innermost cause in one line; `__cause__` has the whole error."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The totals of one run: records read and rejected, late groups, and micro-batches of both queries."""

    records: int = 0
    rejected: int = 0
    late: int = 0
    batches: int = 0

    def with_batch(self, batch: BatchProgress) -> "Summary":
        """Return the totals with one more batch. Both queries read every record, so only `views` counts records."""
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
    """Run the job until `stop` is set or, with `until_caught_up`, until the end of the topic.

    Blocks. A stop waits up to a minute for the current micro-batch, so that the next run need not repeat it. Raises
    PipelineFailed when a query fails, and stops the other one; the next run continues from both checkpoints.
    """
    stop = stop or threading.Event()
    readers: list[_BatchReader] = []
    summary = Summary()
    try:
        for start in (_start_rejected, _start_views):
            readers.append(_BatchReader(start(config, spark)))
        while not stop.is_set() and all(reader.query.isActive for reader in readers):
            summary = _report(readers, summary, on_progress)
            stop.wait(_POLL_SECONDS)
        if config.until_caught_up and not stop.is_set():
            _await_all([reader.query for reader in readers], stop)
    except PySparkException as failure:
        raise PipelineFailed(_one_line(failure)) from failure
    finally:
        for reader in readers:
            _stop(reader.query)
    for reader in readers:
        cause = reader.query.exception()
        if cause is not None:
            raise PipelineFailed(_one_line(cause)) from cause
    return _report(readers, summary, on_progress)


def read_topic(config: PipelineConfig, spark: SparkSession) -> DataFrame:
    """Read the input topic as a stream, with the columns of Spark's Kafka source."""
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
    records = classified(read_topic(config, spark), config.max_ahead_ms)
    observed = records.observe("input", F.count("reason").alias("rejected"))
    counts = views_per_window(views(observed), config.window_ms, config.lateness_ms)

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        try:
            # The count computes every partition; otherwise Spark would not commit the batch's state.
            if batch.count() == 0:
                return
            batch.coalesce(1).write.mode("overwrite").parquet(f"{config.output_directory}/batch_id={batch_id}")
            as_records(batch).write.format("kafka").options(**_sink_options(config, config.output_topic)).save()
        finally:
            batch.unpersist()

    return _start(counts.writeStream.foreachBatch(write), config, "views")


def _start_rejected(config: PipelineConfig, spark: SparkSession) -> StreamingQuery:
    rejected = as_rejected_records(classified(read_topic(config, spark), config.max_ahead_ms))
    sink = rejected.writeStream.format("kafka").options(**_sink_options(config, config.rejected_topic))
    return _start(sink, config, "rejected")


def _start(sink: DataStreamWriter, config: PipelineConfig, name: str) -> StreamingQuery:
    writer = (
        sink.queryName(name).outputMode("append").option("checkpointLocation", f"{config.checkpoint_directory}/{name}")
    )
    if config.until_caught_up:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{config.trigger_ms} milliseconds").start()


def _sink_options(config: PipelineConfig, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": config.bootstrap_servers, "topic": topic, **_client_options(config)}


def _client_options(config: PipelineConfig) -> dict[str, str]:
    return {f"kafka.{name.removeprefix('kafka.')}": value for name, value in config.kafka_options.items()}


class _BatchReader:
    """Reads the batches of one query, each once: Spark keeps its last hundred reports, and repeats them when idle."""

    def __init__(self, query: StreamingQuery) -> None:
        self.query = query
        self._last_batch_id = -1

    def new_batches(self) -> Iterator[BatchProgress]:
        for report in self.query.recentProgress:
            # PySpark 3.5 returns the JSON object, 4.0 a wrapper with typed fields.
            progress: Mapping[str, Any] = json.loads(report.json) if hasattr(report, "json") else report
            if executed(progress) and progress["batchId"] > self._last_batch_id:
                self._last_batch_id = progress["batchId"]
                yield read_progress(progress)


def _report(readers: list[_BatchReader], summary: Summary, on_progress: OnProgress) -> Summary:
    for reader in readers:
        for batch in reader.new_batches():
            on_progress(batch)
            summary = summary.with_batch(batch)
    return summary


def _await_all(queries: list[StreamingQuery], stop: threading.Event) -> None:
    """Wait until all queries have ended, or one has failed; a query ends when it is at the end of the topic."""
    while any(query.isActive for query in queries) and not stop.is_set():
        if any(query.exception() is not None for query in queries if not query.isActive):
            return
        stop.wait(_POLL_SECONDS)


def _stop(query: StreamingQuery) -> None:
    """Stop a query between two micro-batches, or, after a minute, in the middle of one; the checkpoint allows both."""
    deadline = time.monotonic() + _STOP_SECONDS
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    query.stop()


def _one_line(failure: BaseException) -> str:
    """Return the last `Caused by` line of an error, because Spark wraps a cause several times and adds a plan."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    return causes[-1] if causes else (lines[0] if lines else type(failure).__name__)
