"""`odradek produce`: write records to a topic, from arguments or standard input."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator

import click

from odradek.cli.output import bootstrap_option, connected
from odradek.client.records import RecordProducer
from odradek_wire.records.record import Record


@click.command()
@bootstrap_option
@click.argument("topic")
@click.argument("values", nargs=-1)
@click.option("-k", "--key", help="The key of every record.")
@click.option("-K", "--key-separator", metavar="TEXT", help="Split each value into key and value at TEXT.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="NAME=VALUE", help="A header of every record; may be repeated."
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(min=0),
    help="Partition of every record. Default: by the key; records without a key go to the partitions in turn.",
)
@click.option("--tombstone", is_flag=True, help="Write one record with the key and a null value.")
def command(
    bootstrap: str,
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    tombstone: bool,
) -> None:
    """Write a record to TOPIC for each of VALUES or, without VALUES, for each line of standard input.

    Waits until all records are acknowledged (acks=all).
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator cannot be combined")
    if tombstone and (key is None or values):
        raise click.UsageError("--tombstone needs --key and takes no values")
    pairs = [_header(header) for header in headers]
    with connected(bootstrap) as client:
        writer = RecordProducer(client, topic)
        for own_key, value in [(key, None)] if tombstone else _keyed(_values(values), key, key_separator):
            record = Record(
                0,
                time.time_ns() // 1_000_000,
                None if own_key is None else own_key.encode("utf-8", "surrogateescape"),
                None if value is None else value.encode("utf-8", "surrogateescape"),
                tuple(pairs),
            )
            writer.write(record, partition)
        writer.flush()
        click.echo(f"{writer.written} record{'' if writer.written == 1 else 's'} written to {topic}", err=True)


def _values(values: tuple[str, ...]) -> Iterator[str]:
    if values:
        yield from values
        return
    # Surrogates keep the bytes that are not UTF-8, as Python does in arguments.
    for line in io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8", errors="surrogateescape"):
        yield line.rstrip("\n")


def _keyed(values: Iterator[str], key: str | None, separator: str | None) -> Iterator[tuple[str | None, str | None]]:
    for value in values:
        if separator is None:
            yield key, value
            continue
        own_key, found, rest = value.partition(separator)
        if not found:
            raise click.ClickException(f"{value!r} has no {separator!r} between key and value")
        yield own_key, rest


def _header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"{text!r} is not of the form name=value", param_hint="--header")
    return name, value.encode("utf-8", "surrogateescape")
