"""`odradek pipeline`, also `python -m odradek_pipeline`: the job from a terminal.

Owns options, showing progress, signals and exit codes (0 ended as asked, 1 the job failed, 2 it could not begin).
Spark is imported only when the job is really about to start.
"""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek_pipeline.config import ConfigError, PipelineConfig

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_PAIR = "NAME=VALUE"
_SECONDS = "SECONDS"


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.argument("input_topic")
@click.argument("output_topic")
@click.option("--output", required=True, help="directory for the counts as Parquet", metavar="DIR")
@click.option("--checkpoint", required=True, help="directory that remembers where the job is", metavar="DIR")
@click.option("--bootstrap", "-b", envvar="ODRADEK_BOOTSTRAP", default="127.0.0.1:9092", metavar="HOST:PORT")
@click.option("--rejected-topic", default="", show_default="INPUT_TOPIC.rejected", help="for records that are no views")
@click.option("--window", default=60.0, help="length of a window", metavar=_SECONDS)
@click.option("--lateness", default=30.0, help="how late a view may be", metavar=_SECONDS)
@click.option("--ahead", default=3600.0, help="how far a view may be ahead of its record", metavar=_SECONDS)
@click.option("--trigger", default=2.0, help="time from micro-batch to micro-batch", metavar=_SECONDS)
@click.option("--max-offsets", type=int, help="most records of a micro-batch")
@click.option("--once", is_flag=True, help="end when caught up with the topic")
@click.option("--from-latest", is_flag=True, help="begin, the first time, at the topic's end")
@click.option("--tolerate-data-loss", is_flag=True, help="go on over records that are gone")
@click.option("--kafka-option", multiple=True, help="option of Kafka's clients", metavar=_PAIR)
@click.option("--master", default="local[*]", help="Spark master")
@click.option("--jar", multiple=True, type=click.Path(path_type=Path), help="jar of Spark's Kafka connector")
@click.option("--spark-option", multiple=True, help="setting of Spark", metavar=_PAIR)
def command(
    input_topic: str,
    output_topic: str,
    output: str,
    checkpoint: str,
    bootstrap: str,
    rejected_topic: str,
    window: float,
    lateness: float,
    ahead: float,
    trigger: float,
    max_offsets: int | None,
    once: bool,
    from_latest: bool,
    tolerate_data_loss: bool,
    kafka_option: tuple[str, ...],
    master: str,
    jar: tuple[Path, ...],
    spark_option: tuple[str, ...],
) -> int:
    """Count page views per window of time with Spark: INPUT_TOPIC to OUTPUT_TOPIC and Parquet.

    A page view is JSON with "page" and "viewed_at" (ISO 8601). The job goes on from its checkpoint when it is started
    again; Ctrl-C ends it after the micro-batch that it is at.
    """
    try:
        config = PipelineConfig(
            bootstrap_servers=bootstrap,
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
        raise click.UsageError(str(mistake)) from None
    return _run(config, master, jar, settings)


def _run(config: PipelineConfig, master: str, jars: tuple[Path, ...], settings: dict[str, str]) -> int:
    try:
        from odradek_pipeline.jars import JarsUnavailable
        from odradek_pipeline.job import PipelineFailed, run
        from odradek_pipeline.session import SessionConfig, SessionFailed, open_session
    except ModuleNotFoundError as missing:
        raise click.ClickException(f"{missing.name} is missing: pip install 'odradek[spark]'") from None
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    try:
        with console.status("starting Spark ..."):
            spark = open_session(SessionConfig(master=master, jars=jars, settings=settings))
    except (JarsUnavailable, SessionFailed) as failure:
        raise click.ClickException(f"Spark cannot be started: {failure}") from None
    try:
        # After Spark, which installs a handler for SIGINT of its own.
        with _stop_on_signals() as stop:
            console.print(f"{config.input_topic} -> {config.output_topic}, {config.output_directory}")
            done = run(config, spark, on_progress=lambda batch: console.print(batch.line()), stop=stop)
    except PipelineFailed as failure:
        click.echo(f"odradek pipeline: {failure}", err=True)
        return 1
    finally:
        spark.stop()
    console.print(
        f"{done.records:,} records in {done.batches:,} batches, {done.rejected:,} rejected, {done.late:,} too late"
    )
    return 0


def _pairs(option: str, given: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for pair in given:
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


def main(arguments: list[str] | None = None) -> None:
    """The entry point of `python -m odradek_pipeline`; one line on standard error for bad input."""
    try:
        result = command.main(arguments, prog_name="odradek pipeline", standalone_mode=False)
    except click.ClickException as error:
        print(f"odradek pipeline: {' '.join(error.format_message().split())}", file=sys.stderr)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(result if isinstance(result, int) else 0)
