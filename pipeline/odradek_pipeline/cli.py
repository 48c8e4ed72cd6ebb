"""`odradek pipeline`, also `python -m odradek_pipeline`: the command line of the job.

Owns options, the display of progress, signals and exit codes: 0 when the job has ended or was stopped, 1 when it has
failed, 2 when it could not start. Imports Spark only when it starts the job.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek_pipeline.pipeline_config import PipelineConfig, PipelineConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_OPTION = "NAME=VALUE"
_SECONDS = "SECONDS"


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.argument("input_topic")
@click.argument("output_topic")
@click.option("--output", required=True, help="Directory for the counts as Parquet.", metavar="DIR")
@click.option(
    "--checkpoint", required=True, help="Directory for the checkpoint, from which the job continues.", metavar="DIR"
)
@click.option(
    "--bootstrap",
    "-b",
    envvar="ODRADEK_BOOTSTRAP",
    default="127.0.0.1:9092",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Address of a broker, or of several, separated by commas.",
)
@click.option(
    "--rejected-topic",
    default="",
    show_default="INPUT_TOPIC.rejected",
    help="Topic for records that are not page views.",
)
@click.option(
    "--window",
    type=click.FloatRange(min=0.001),
    default=60.0,
    help="Length of a window of event time.",
    metavar=_SECONDS,
)
@click.option(
    "--lateness",
    type=click.FloatRange(min=0),
    default=30.0,
    help="A view still counts if it is at most this much older than the newest view.",
    metavar=_SECONDS,
)
@click.option(
    "--max-ahead",
    type=click.FloatRange(min=0),
    default=3600.0,
    help="A view is rejected if its time is further ahead of its record's timestamp.",
    metavar=_SECONDS,
)
@click.option(
    "--trigger",
    type=click.FloatRange(min=0.001),
    default=2.0,
    help="Time between two micro-batches.",
    metavar=_SECONDS,
)
@click.option("--max-offsets", type=click.IntRange(min=1), help="Maximum number of records in a micro-batch.")
@click.option("--once", is_flag=True, help="Stop when the records that are in the topic at the start are processed.")
@click.option("--from-latest", is_flag=True, help="Begin the first run at the end of the topic.")
@click.option("--tolerate-data-loss", is_flag=True, help="Continue when records were deleted before the job read them.")
@click.option("--kafka-option", multiple=True, help="Setting of the Kafka clients; may be repeated.", metavar=_OPTION)
@click.option("--master", default="local[*]", help="Spark master.")
@click.option(
    "--jar", multiple=True, type=click.Path(path_type=Path), help="Jar of Spark's Kafka connector; may be repeated."
)
@click.option("--spark-option", multiple=True, help="Setting of Spark; may be repeated.", metavar=_OPTION)
def command(
    input_topic: str,
    output_topic: str,
    output: str,
    checkpoint: str,
    bootstrap: str,
    rejected_topic: str,
    window: float,
    lateness: float,
    max_ahead: float,
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
    """Count page views per window of event time with Spark, from INPUT_TOPIC to OUTPUT_TOPIC and to Parquet.

    A page view is a JSON object with "page" and "viewed_at" (ISO 8601). The next run continues from the checkpoint.
    Ctrl-C stops the job after the current micro-batch.
    """
    try:
        config = PipelineConfig(
            bootstrap_servers=bootstrap,
            input_topic=input_topic,
            output_topic=output_topic,
            output_directory=output,
            checkpoint_directory=checkpoint,
            rejected_topic=rejected_topic,
            window_ms=_ms("--window", window),
            lateness_ms=_ms("--lateness", lateness),
            max_ahead_ms=_ms("--max-ahead", max_ahead),
            trigger_ms=_ms("--trigger", trigger),
            max_offsets_per_trigger=max_offsets,
            starting_offsets="latest" if from_latest else "earliest",
            fail_on_data_loss=not tolerate_data_loss,
            until_caught_up=once,
            kafka_options=_pairs("--kafka-option", kafka_option),
        )
        settings = _pairs("--spark-option", spark_option)
    except PipelineConfigError as error:
        raise click.UsageError(str(error)) from None
    return _run(config, master, jar, settings)


def _run(config: PipelineConfig, master: str, jars: tuple[Path, ...], settings: dict[str, str]) -> int:
    try:
        from odradek_pipeline.connector_jars import JarsUnavailable
        from odradek_pipeline.job import PipelineFailed, run
        from odradek_pipeline.spark_session import SessionConfig, SessionFailed, open_session
    except ModuleNotFoundError as missing:
        raise click.ClickException(f"cannot import {missing.name}: run pip install 'odradek[spark]'") from None
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    try:
        with console.status("starting Spark"):
            spark = open_session(SessionConfig(master=master, jars=jars, settings=settings))
    except (JarsUnavailable, SessionFailed) as failure:
        raise click.ClickException(f"cannot start Spark: {failure}") from None
    try:
        # After Spark has started, because Spark installs its own handler for SIGINT.
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


def _ms(option: str, seconds: float) -> int:
    if not math.isfinite(seconds):
        raise PipelineConfigError(f"{option} must be a number of seconds, got {seconds}")
    return round(seconds * 1000)


def _pairs(option: str, given: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise PipelineConfigError(f"{option} must be NAME=VALUE, got {pair!r}")
        pairs[name] = value
    return pairs


@contextmanager
def _stop_on_signals() -> Iterator[threading.Event]:
    """Set an event on SIGINT and SIGTERM for the length of the block."""
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
    """Run the command for `python -m odradek_pipeline`. Exits 2, with one line on standard error, after bad input."""
    try:
        result = command.main(arguments, prog_name="odradek pipeline", standalone_mode=False)
    except click.ClickException as error:
        print(f"odradek pipeline: {' '.join(error.format_message().split())}", file=sys.stderr)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    sys.exit(result if isinstance(result, int) else 0)
