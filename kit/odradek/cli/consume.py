"""`odradek consume`: records of a topic, for a person or, a JSON document a line, for a program."""

from __future__ import annotations

import base64
import json

import click

from odradek.cli import positions
from odradek.cli.output import bootstrap_option, connected
from odradek.client.records import LATEST, Placed, list_offsets, read


@click.command()
@bootstrap_option
@click.argument("topic")
@click.option("-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Default: all.")
@click.option(
    "--from",
    "start",
    default="beginning",
    show_default=True,
    metavar="POSITION",
    help=positions.HELP,
)
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after so many records.")
@click.option("-f", "--follow", is_flag=True, help="Go on for ever, instead of ending at the present end.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document a line.")
def command(
    bootstrap: str,
    topic: str,
    partitions: tuple[int, ...],
    start: str,
    count: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Read the records of TOPIC."""
    with connected(bootstrap) as client:
        ends = list_offsets(client, topic, LATEST)
        unknown = sorted(set(partitions) - set(ends))
        if unknown:
            raise click.ClickException(f"topic {topic!r} has no partition {unknown[0]}: it has {len(ends)}")
        start_offsets = {
            partition: offset
            for partition, offset in positions.offsets_at(client, topic, start).items()
            if not partitions or partition in partitions
        }
        # To follow, or to start at the end, means to wait for what is not there yet.
        until = None if follow or start == "end" else ends
        for number, placed in enumerate(read(client, topic, start_offsets, ends=until), 1):
            click.echo(_as_json(topic, placed) if as_json else _as_text(placed))
            if number == count:
                return


def _as_text(placed: Placed) -> str:
    record = placed.record
    key = "" if record.key is None else record.key.decode("utf-8", "replace") + "\t"
    return f"{placed.partition}:{record.offset}\t{key}" + (
        "(null)" if record.value is None else record.value.decode("utf-8", "replace")
    )


def _as_json(topic: str, placed: Placed) -> str:
    record = placed.record
    document = {
        "topic": topic,
        "partition": placed.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_bytes("key", record.key),
        **_bytes("value", record.value),
        "headers": [{"name": name, **_bytes("value", value)} for name, value in record.headers],
    }
    return json.dumps(document, ensure_ascii=False)


def _bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """Text where it is text; else base64 under a name that says so, since a guess would lose bytes."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {name + "_base64": base64.b64encode(data).decode("ascii")}
