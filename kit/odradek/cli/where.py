"""WHERE in a topic: what a person may write for a position, and the offsets that it means."""

from __future__ import annotations

import click

from odradek.client import Client
from odradek.client.records import EARLIEST, LATEST, list_offsets

HELP = "beginning, end, an offset, or @MS: a time in ms."


def offsets_at(client: Client, topic: str, where: str) -> dict[int, int]:
    """Offset per partition. An offset outside a partition means its nearest end."""
    if where == "beginning":
        return list_offsets(client, topic, EARLIEST)
    if where == "end":
        return list_offsets(client, topic, LATEST)
    if where.startswith("@") and where[1:].isdecimal():
        return list_offsets(client, topic, int(where[1:]))
    if where.isdecimal():
        starts = list_offsets(client, topic, EARLIEST)
        ends = list_offsets(client, topic, LATEST)
        return {partition: min(max(int(where), starts[partition]), end) for partition, end in ends.items()}
    raise click.BadParameter(f"{where!r} is none of beginning, end, an offset, @milliseconds")
