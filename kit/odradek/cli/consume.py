"""`odradek consume`: print the records of a topic, as text or as a JSON document per line."""

from __future__ import annotations

import base64
import json

import click

from odradek.cli import positions
from odradek.cli.output import bootstrap_option, connected
from odradek.client.records import LATEST, ConsumerRecord, list_offsets, read


@click.command()
@bootstrap_option
@click.argument("topic")
@click.option(
    "-p",
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    multiple=True,
    help="Read only this partition; may be repeated.",
)
@click.option(
    "--from",
    "start",
    default="beginning",
    show_default=True,
    metavar="POSITION",
    help=positions.HELP,
)
@click.option("-n", "--count", type=click.IntRange(min=1), help="Stop after this number of records.")
@click.option("-f", "--follow", is_flag=True, help="Wait for new records at the end, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document per line.")
def command(
    bootstrap: str,
    topic: str,
    partitions: tuple[int, ...],
    start: str,
    count: int | None,
    follow: bool,
    as_json: bool,
) -> None:
    """Print the records of TOPIC.

    A line has partition:offset, the key if there is one, and the value, separated by tabs.
    """
    with connected(bootstrap) as client:
        ends = list_offsets(client, topic, LATEST)
        unknown = sorted(set(partitions) - set(ends))
        if unknown:
            raise click.ClickException(
                f"topic {topic!r} has no partition {unknown[0]}: the last one is {len(ends) - 1}"
            )
        start_offsets = {
            partition: offset
            for partition, offset in positions.offsets_at(client, topic, start).items()
            if not partitions or partition in partitions
        }
        # --follow, and --from end, wait for new records.
        until = None if follow or start == "end" else ends
        for number, found in enumerate(read(client, topic, start_offsets, ends=until), 1):
            click.echo(_as_json(topic, found) if as_json else _as_text(found))
            if number == count:
                return


def _as_text(found: ConsumerRecord) -> str:
    record = found.record
    key = "" if record.key is None else record.key.decode("utf-8", "replace") + "\t"
    return f"{found.partition}:{record.offset}\t{key}" + (
        "(null)" if record.value is None else record.value.decode("utf-8", "replace")
    )


def _as_json(topic: str, found: ConsumerRecord) -> str:
    record = found.record
    document = {
        "topic": topic,
        "partition": found.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_bytes("key", record.key),
        **_bytes("value", record.value),
        "headers": [{"name": name, **_bytes("value", value)} for name, value in record.headers],
    }
    return json.dumps(document, ensure_ascii=False)


def _bytes(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes that are UTF-8 as text; other bytes in base64, under a name that ends in _base64."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode("utf-8")}
    except UnicodeDecodeError:
        return {name + "_base64": base64.b64encode(data).decode("ascii")}
