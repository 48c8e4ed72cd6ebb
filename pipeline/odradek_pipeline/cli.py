"""`odradek pipeline`, also `python -m odradek_pipeline`: the job from a terminal.

Owns options, showing progress, signals and exit codes (0 ended as asked, 1 the job failed, 2 it could not begin).
Spark is imported only when the job is really about to start.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from odradek_pipeline.config import ConfigError, PipelineConfig

app = typer.Typer(add_completion=False)


@app.command()
def pipeline(
    input_topic: Annotated[str, typer.Argument(help="topic of page views: JSON with page and viewed_at")],
    output_topic: Annotated[str, typer.Argument(help="topic for the counts")],
    output: Annotated[str, typer.Option(help="directory for the counts as Parquet")],
    checkpoint: Annotated[str, typer.Option(help="directory that remembers where the job is")],
    bootstrap_servers: Annotated[str, typer.Option("--bootstrap-servers", "-b")] = "127.0.0.1:9092",
    rejected_topic: Annotated[str, typer.Option(help="for records that are no views [INPUT_TOPIC.rejected]")] = "",
    window: Annotated[float, typer.Option(help="seconds of a window")] = 60.0,
    lateness: Annotated[float, typer.Option(help="seconds that a view may be late")] = 30.0,
    ahead: Annotated[float, typer.Option(help="seconds that a view may be ahead of its record")] = 3600.0,
    trigger: Annotated[float, typer.Option(help="seconds between micro-batches")] = 2.0,
    max_offsets: Annotated[int | None, typer.Option(help="most records of a micro-batch")] = None,
    once: Annotated[bool, typer.Option("--once", help="end when caught up with the topic")] = False,
    from_latest: Annotated[bool, typer.Option("--from-latest", help="begin at the topic's end")] = False,
    tolerate_data_loss: Annotated[
        bool, typer.Option("--tolerate-data-loss", help="go on over deleted records")
    ] = False,
    kafka_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="option of Kafka's clients")
    ] = None,
    master: Annotated[str, typer.Option(help="Spark master")] = "local[*]",
    jar: Annotated[list[Path] | None, typer.Option(help="jars of Spark's Kafka connector")] = None,
    spark_option: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="setting of Spark")] = None,
) -> None:
    """Count page views per window of time with Spark: topic to topic and Parquet. Ctrl-C ends it after its batch."""
    errors = Console(stderr=True)
    try:
        config = PipelineConfig(
            bootstrap_servers=bootstrap_servers,
            input_topic=input_topic,
            output_topic=output_topic,
            output_directory=output,
            checkpoint_directory=checkpoint,
            rejected_topic=rejected_topic,
            window_ms=round(window * 1000),
            lateness_ms=round(lateness * 1000),
            ahead_ms=round(ahead * 1000),
            trigger_ms=round(trigger * 1000),
            max_offsets_per_trigger=max_offsets,
            starting_offsets="latest" if from_latest else "earliest",
            fail_on_data_loss=not tolerate_data_loss,
            until_caught_up=once,
            kafka_options=_pairs("--kafka-option", kafka_option),
        )
        settings = _pairs("--spark-option", spark_option)
    except ConfigError as mistake:
        errors.print(f"odradek pipeline: {mistake}", style="red", markup=False)
        raise typer.Exit(2) from None
    raise typer.Exit(_run(config, master, tuple(jar or ()), settings, errors))


def _run(config: PipelineConfig, master: str, jars: tuple[Path, ...], settings: dict[str, str], errors: Console) -> int:
    def refuse(what: object, code: int) -> int:
        errors.print(f"odradek pipeline: {what}", style="red", markup=False)
        return code

    try:
        from odradek_pipeline.jars import JarsUnavailable
        from odradek_pipeline.job import PipelineFailed, run
        from odradek_pipeline.session import SessionConfig, open_session
    except ModuleNotFoundError as missing:
        return refuse(f"{missing.name} is missing: pip install odradek[spark]", 2)
    console = Console()
    try:
        with console.status("starting Spark ..."):
            spark = open_session(SessionConfig(master=master, jars=jars, settings=settings))
    except JarsUnavailable as unavailable:
        return refuse(unavailable, 2)
    try:
        # After Spark, which installs a handler for SIGINT of its own.
        with _stop_on_signals() as stop:
            console.print(f"{config.input_topic} -> {config.output_topic}, {config.output_directory}", markup=False)
            done = run(config, spark, on_progress=lambda batch: console.print(batch.line(), markup=False), stop=stop)
    except PipelineFailed as failure:
        return refuse(failure, 1)
    finally:
        spark.stop()
    console.print(
        f"{done.records:,} records in {done.batches:,} batches, {done.rejected:,} rejected, {done.late:,} too late"
    )
    return 0


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    pairs = {}
    for pair in given or []:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise ConfigError(f"{option} wants NAME=VALUE, not {pair!r}")
        pairs[name] = value
    return pairs


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set while we are inside."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> None:
    """The entry point of `python -m odradek_pipeline`."""
    app()
