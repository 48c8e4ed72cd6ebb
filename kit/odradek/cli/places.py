"""TOPIC or TOPIC:PARTITION: how a person names what a command is about."""

from __future__ import annotations

from collections.abc import Iterable

import click

from odradek.client.state import ClusterState, Partition


def place(text: str) -> tuple[str, int | None]:
    """Topic, and partition or None. A colon is in no topic's name."""
    topic, separator, index = text.partition(":")
    if not topic or (separator and not index.isdecimal()):
        raise click.BadParameter(f"{text!r} is not of the form topic or topic:partition")
    return topic, int(index) if separator else None


def broker_ids(text: str) -> list[int]:
    """`1,2,3`, each once."""
    ids = text.split(",")
    if not all(each.isdecimal() for each in ids):
        raise click.BadParameter(f"{text!r} is not of the form 1,2,3")
    if len(set(ids)) < len(ids):
        raise click.BadParameter(f"{text!r} names a broker twice")
    return [int(each) for each in ids]


def partitions_of(state: ClusterState, places: Iterable[tuple[str, int | None]]) -> list[Partition]:
    """What a person named, each partition once; `KafkaError` for what there is not."""
    found = {partition: None for topic, index in places for partition in state.of(topic, index)}
    return list(found)
