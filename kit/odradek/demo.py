"""`make demo`: a broker, an unmodified producer of page views and a streaming Spark job; it checks the result.

The broker is a `Cluster` or, with BOOTSTRAP in the environment, another one; the client is confluent-kafka, the job is
`odradek_pipeline`. Exits 0 when every count is right, else 1.

Visitors send views for 22 seconds, or for the number of seconds in the argument. Each second advances the timestamps by
24 seconds, so that there are several windows of a minute.
"""

import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from odradek_pipeline.job import Summary, run
from odradek_pipeline.pipeline_config import PipelineConfig
from odradek_pipeline.progress import BatchProgress
from odradek_pipeline.spark_session import SessionConfig, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 22
PER_SECOND = 500
_EVENT_MS_PER_SECOND = 24_000
_WINDOW_MS = 60_000
_LATENESS_MS = 30_000
# Page -> relative frequency.
_PAGES = {"/": 40, "/castle": 25, "/trial": 20, "/burrow": 10, "/odradek": 5}

Counts = dict[tuple[int, str], int]
"""(window's start in ms, page) -> views"""


@dataclass
class Sent:
    """The records that the client has sent, and the counts that the job must find."""

    records: int = 0
    malformed: int = 0
    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    newest_ms: int = 0

    def view(self, page: str, ms: int) -> bytes:
        self.records += 1
        self.counts[ms - ms % _WINDOW_MS, page] += 1
        self.newest_ms = max(self.newest_ms, ms)
        return json.dumps({"page": page, "viewed_at": datetime.fromtimestamp(ms / 1000, UTC).isoformat()}).encode()

    def malformed_view(self) -> bytes:
        self.records += 1
        self.malformed += 1
        return b'{"page": "/odr'

    def final(self) -> Counts:
        """Return the counts of the windows that end before the watermark: the counts that the job writes."""
        watermark = self.newest_ms - _LATENESS_MS
        return {key: number for key, number in self.counts.items() if key[0] + _WINDOW_MS <= watermark}


class Visitors(threading.Thread):
    """Sends page views, some out of order and one in a hundred malformed; the last one makes all windows final."""

    def __init__(self, config: PipelineConfig, bars: "Bars", seconds: int) -> None:
        super().__init__(name="visitors")
        self.sent = Sent()
        self._seconds = seconds
        self.failures: list[str] = []
        self._config = config
        self._bars = bars

    def run(self) -> None:
        config, rng = self._config, random.Random(1)
        producer = Producer({"bootstrap.servers": config.bootstrap_servers, "enable.idempotence": True})
        now_ms = int(time.time() * 1000)
        start_ms = now_ms - now_ms % _WINDOW_MS - self._seconds * _EVENT_MS_PER_SECOND
        begun = time.monotonic()
        for number in range(self._seconds * PER_SECOND):
            time.sleep(max(0.0, begun + number / PER_SECOND - time.monotonic()))
            ms = start_ms + number * _EVENT_MS_PER_SECOND // PER_SECOND
            page = rng.choices(list(_PAGES), list(_PAGES.values()))[0]
            if rng.random() < 0.01:
                self._send(producer, self.sent.malformed_view(), ms)
            else:
                # Out of order, but not too late.
                self._send(producer, self.sent.view(page, ms - rng.randrange(_LATENESS_MS // 2)), ms)
        # A view after the last window makes the counts of all windows before it final.
        last_ms = start_ms + self._seconds * _EVENT_MS_PER_SECOND + 2 * _WINDOW_MS
        self._send(producer, self.sent.view("/", last_ms), last_ms)
        if producer.flush(30):
            self.failures.append("the broker did not acknowledge every record")

    def _send(self, producer: Producer, value: bytes, ms: int) -> None:
        producer.produce(self._config.input_topic, value, timestamp=ms, on_delivery=self._delivered)
        producer.poll(0)
        self._bars.sent(self.sent.records)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.failures.append(str(error))


class Bars:
    """Two progress bars, of sent and of counted records; the lines of the micro-batches scroll above them."""

    def __init__(self, console: Console, seconds: int) -> None:
        self.progress = Progress(
            TextColumn("{task.description:>8}"),
            BarColumn(40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        total = seconds * PER_SECOND + 1
        self._sent = self.progress.add_task("sent", total=total)
        self._counted = self.progress.add_task("counted", total=total)

    def sent(self, records: int) -> None:
        self.progress.update(self._sent, completed=records)

    def batch(self, batch: BatchProgress) -> None:
        if batch.query != "views":
            return
        self.progress.advance(self._counted, batch.input_rows)
        self.progress.console.print(f"  {batch.line()}", markup=False, highlight=False, soft_wrap=True)


class StopWhenDone:
    """Sets `reached`, which stops the job, when both queries have read every record and the last window is final."""

    def __init__(self, visitors: Visitors) -> None:
        self.reached = threading.Event()
        self._visitors = visitors
        self._read: Counter[str] = Counter()
        self._final = False

    def batch(self, batch: BatchProgress) -> None:
        self._read[batch.query] += batch.input_rows
        visitors = self._visitors
        if visitors.is_alive():
            return
        self._final = self._final or batch.watermark == _as_watermark(visitors.sent.newest_ms - _LATENESS_MS)
        if visitors.failures or (
            self._final and all(self._read[query] >= visitors.sent.records for query in ("views", "rejected"))
        ):
            self.reached.set()


def _as_watermark(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{ms % 1000:03}Z"


@contextmanager
def _broker(console: Console) -> Iterator[str]:
    bootstrap = os.environ.get("BOOTSTRAP")
    if bootstrap:
        console.print(f"using the broker at [bold]{bootstrap}[/]")
        yield bootstrap
        return
    from odradek.cluster import Cluster

    begun = time.perf_counter()
    with Cluster() as cluster:
        took = (time.perf_counter() - begun) * 1000
        console.print(f"Odradek is ready at [bold]{cluster.bootstrap_servers}[/] after {took:.0f} ms")
        yield cluster.bootstrap_servers


def _create_topics(config: PipelineConfig) -> None:
    admin = AdminClient({"bootstrap.servers": config.bootstrap_servers})
    topics = [NewTopic(config.input_topic, 3, 1)]
    topics += [NewTopic(name, 1, 1) for name in (config.output_topic, config.rejected_topic)]
    for created in admin.create_topics(topics).values():
        created.result(30)


def _counts_in_topic(config: PipelineConfig) -> Counts:
    """Read the result from the output topic: the last value of each key."""
    counts: Counts = {}
    for value in _values(config, config.output_topic):
        record = json.loads(value)
        counts[round(datetime.fromisoformat(record["window_start"]).timestamp() * 1000), record["page"]] = record[
            "views"
        ]
    return counts


def _values(config: PipelineConfig, topic: str) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": config.bootstrap_servers, "group.id": "demo"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    while len(values) < end and time.monotonic() < deadline:
        values += [message.value() or b"" for message in consumer.consume(end - len(values), timeout=1)]
    consumer.close()
    return values


def _counts_in_parquet(config: PipelineConfig, spark: "SparkSession") -> Counts:
    rows = spark.read.parquet(config.output_directory).selectExpr("unix_millis(window_start)", "page", "views")
    return {(start, page): views for start, page, views in rows.collect()}


def _table(counts: Counts) -> Table:
    table = Table(title="page views per minute (UTC), as written by the job")
    table.add_column("minute")
    for page in _PAGES:
        table.add_column(page, justify="right")
    for start in sorted({start for start, _ in counts}):
        cells = (f"{counts.get((start, page), 0):,}" for page in _PAGES)
        table.add_row(datetime.fromtimestamp(start / 1000, UTC).strftime("%H:%M"), *cells)
    return table


def _verdict(console: Console, checks: list[tuple[str, object, object]]) -> bool:
    for label, found, expected in checks:
        right = found == expected
        mark = "[green]right[/]" if right else "[bold red]WRONG[/]"
        console.print(f"  {mark}  {label}", highlight=False)
        if not right:
            console.print(f"         found {found!r}\n         expected {expected!r}", markup=False)
    return all(found == expected for _, found, expected in checks)


def _watch(
    config: PipelineConfig, spark: "SparkSession", console: Console, seconds: int
) -> tuple[Sent, Summary, list[str]]:
    """Run visitors and job until the last window is final."""
    bars = Bars(console, seconds)
    visitors = Visitors(config, bars, seconds)
    stop = StopWhenDone(visitors)

    def on_progress(batch: BatchProgress) -> None:
        bars.batch(batch)
        stop.batch(batch)

    with bars.progress:
        visitors.start()
        summary = run(config, spark, on_progress=on_progress, stop=stop.reached)
        visitors.join()
    return visitors.sent, summary, visitors.failures


def demo(console: Console, seconds: int = SECONDS) -> int:
    """Run the demo; return the exit code."""
    with ExitStack() as stack:
        servers = stack.enter_context(_broker(console))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-demo-")))
        suffix = "" if "BOOTSTRAP" not in os.environ else f"-{os.getpid()}"
        config = PipelineConfig(
            bootstrap_servers=servers,
            input_topic=f"page-views{suffix}",
            output_topic=f"views-per-minute{suffix}",
            output_directory=str(directory / "views-per-minute"),
            checkpoint_directory=str(directory / "checkpoint"),
            window_ms=_WINDOW_MS,
            lateness_ms=_LATENESS_MS,
            trigger_ms=1_000,
        )
        _create_topics(config)
        with console.status("starting Spark"):
            begun = time.perf_counter()
            spark = open_session(SessionConfig(master="local[2]", app_name="odradek-demo"))
            stack.callback(spark.stop)
        console.print(
            f"Spark {spark.version} is ready after {time.perf_counter() - begun:.1f} s; visitors send page views"
        )
        sent, summary, failures = _watch(config, spark, console, seconds)
        counts = _counts_in_topic(config)
        rejected = len(_values(config, config.rejected_topic))
        console.print(_table(counts))
        checks = [
            (f"{sent.records:,} records sent and acknowledged", failures, []),
            ("the job read each record once", summary.records, sent.records),
            (f"{len(counts)} counts in the topic equal the views that were sent", counts, sent.final()),
            ("the Parquet files have the same counts", _counts_in_parquet(config, spark), sent.final()),
            (f"{sent.malformed} malformed records in the rejected topic", rejected, sent.malformed),
            ("no view was too late", summary.late, 0),
        ]
        right = _verdict(console, checks)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(demo(Console(), *map(int, sys.argv[1:])))
