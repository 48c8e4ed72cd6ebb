"""The argument POSITION: a place in a topic, and the offset of each partition at that place."""

from __future__ import annotations

import click

from odradek.client import Client
from odradek.client.records import EARLIEST, LATEST, list_offsets

HELP = "beginning, end, an offset, or @MS: the first record at or after this time, in ms since 1970."


def offsets_at(client: Client, topic: str, position: str) -> dict[int, int]:
    """Return the offset of each partition. An offset outside a partition means its nearest end."""
    if position == "beginning":
        return list_offsets(client, topic, EARLIEST)
    if position == "end":
        return list_offsets(client, topic, LATEST)
    if position.startswith("@") and position[1:].isdecimal():
        return list_offsets(client, topic, int(position[1:]))
    if position.isdecimal():
        starts = list_offsets(client, topic, EARLIEST)
        ends = list_offsets(client, topic, LATEST)
        return {partition: min(max(int(position), starts[partition]), end) for partition, end in ends.items()}
    raise click.BadParameter(f"{position!r} must be beginning, end, an offset, or @ and a time in ms")
