"""`odradek cluster`: a live view of brokers, leaders, in-sync replicas and reassignments."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.output import bootstrap_option, connected, json_option
from odradek.client import Client, ClientError
from odradek.client.client import format_address
from odradek.client.cluster_state import NO_LEADER, ClusterState, PartitionInfo, cluster_state
from odradek.client.reassignments import Reassignment, TopicPartition, copied_shares, reassignments

if TYPE_CHECKING:
    from rich.console import RenderableType

_PARTITIONS_MAX = 15
_COLUMNS = ["broker", "address", "rack", "leads", "replicas", "in_sync", "state"]


@dataclass(frozen=True)
class ClusterView:
    """The brokers, partitions and reassignments at one moment."""

    state: ClusterState
    moves: Sequence[Reassignment]
    copied: Mapping[TopicPartition, float]
    """The share of the new replicas' bytes that is copied, of partitions with new replicas."""

    @property
    def offline(self) -> list[PartitionInfo]:
        return [partition for partition in self.state.partitions if partition.leader == NO_LEADER]

    @property
    def under_replicated(self) -> list[PartitionInfo]:
        return [each for each in self.state.partitions if each.under_replicated and each.leader != NO_LEADER]

    @property
    def healthy(self) -> bool:
        return not (self.offline or self.under_replicated)

    def brokers(self) -> list[dict[str, Any]]:
        """Make a row for each broker that is running or has replicas."""
        partitions = self.state.partitions
        leaders = Counter(partition.leader for partition in partitions)
        preferred = Counter(partition.replicas[0] for partition in partitions if partition.replicas)
        replicas = Counter(broker for partition in partitions for broker in partition.replicas)
        in_sync = Counter(broker for partition in partitions for broker in partition.isr)
        rows = []
        for broker in sorted({*self.state.brokers, *replicas}):
            found = self.state.brokers.get(broker)
            rows.append(
                {
                    "broker": broker,
                    "address": None if found is None else format_address(found.host, found.port),
                    "rack": None if found is None else found.rack,
                    "leads": leaders[broker],
                    "preferred": preferred[broker],
                    "replicas": replicas[broker],
                    "in_sync": in_sync[broker],
                    "state": "down" if found is None else "up",
                }
            )
        return rows


@click.command()
@bootstrap_option
@json_option
@click.option("--once", is_flag=True, help="Show the state once.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two updates.",
)
def command(bootstrap: str, as_json: bool, once: bool, every: float) -> int:
    """Watch brokers and their racks, offline and under-replicated partitions, and reassignments.

    On a terminal, updates the view until Ctrl-C. With --once, with --json, and when the output is not a terminal, shows
    the state once and exits 1 if a partition is offline or under-replicated.
    """
    with connected(bootstrap) as client:
        if as_json or once or not sys.stdout.isatty():
            view = _cluster_view(client)
            if as_json:
                click.echo(json.dumps(_document(view), indent=2, ensure_ascii=False))
            else:
                from rich.console import Console

                Console(soft_wrap=False).print(_rendered(view))
            return int(not view.healthy)
        from rich.live import Live

        with Live(_rendered(_cluster_view(client)), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                try:
                    live.update(_rendered(_cluster_view(client)), refresh=True)
                except ClientError as error:
                    # The next update connects again, to any broker of the bootstrap list.
                    client.close()
                    live.update(str(error), refresh=True)


def _cluster_view(client: Client) -> ClusterView:
    state = cluster_state(client)
    moves = reassignments(client)
    leaders = {(each.topic, each.index): each.leader for each in state.partitions}
    return ClusterView(state, moves, copied_shares(client, moves, leaders))


def _document(view: ClusterView) -> dict[str, Any]:
    return {
        "brokers": view.brokers(),
        "partitions": len(view.state.partitions),
        "offline": [_partition(each) for each in view.offline],
        "under_replicated": [_partition(each) for each in view.under_replicated],
        "reassignments": [
            {
                "topic": move.topic,
                "partition": move.index,
                "replicas": list(move.replicas),
                "adding": list(move.adding),
                "removing": list(move.removing),
                "copied": round(view.copied.get((move.topic, move.index), 1.0), 4),
            }
            for move in view.moves
        ],
    }


def _partition(partition: PartitionInfo) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.index,
        "leader": None if partition.leader == NO_LEADER else partition.leader,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
    }


def _rendered(view: ClusterView) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from odradek.cli.output import table
    from odradek.cli.reassignment_progress import bars

    rows = view.brokers()
    up = len(view.state.brokers)
    headline = Text(
        f"{up} of {len(rows)} brokers up, {len(view.state.partitions)} partitions,"
        f" {len(view.under_replicated)} under-replicated, {len(view.offline)} offline,"
        f" {len(view.moves)} reassignments",
        style="bold green" if view.healthy and up == len(rows) else "bold red",
    )
    parts: list[RenderableType] = [headline, table(rows, _COLUMNS)]
    for title, partitions in (("offline", view.offline), ("under-replicated", view.under_replicated)):
        if partitions:
            shown = [_partition(each) for each in partitions[:_PARTITIONS_MAX]]
            parts += [Text(title, style="bold red"), table(shown, list(shown[0]))]
            if len(partitions) > _PARTITIONS_MAX:
                parts.append(Text(f"and {len(partitions) - _PARTITIONS_MAX} more", style="dim"))
    if view.moves:
        parts += [Text("reassignments", style="bold"), bars(view.moves, view.copied)]
    return Group(*parts)
