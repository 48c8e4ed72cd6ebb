"""`odradek reassign`: replicas move to other brokers; the move is planned, begun, watched, cancelled."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from odradek.cli.output import bootstrap_option, connected, json_option, show
from odradek.cli.places import broker_ids, partitions_of, place
from odradek.client import Client
from odradek.client.plans import drained, moved_to
from odradek.client.reassignments import (
    Plan,
    PlanError,
    Reassignment,
    copied,
    plan_as_json,
    plan_from_json,
    reassign,
    reassignments,
)
from odradek.client.state import ClusterState, cluster_state
from odradek.client.throttles import throttle, unthrottle

Places = tuple[tuple[str, int | None], ...]
Row = dict[str, Any]

_COLUMNS = ["topic", "partition", "replicas", "target", "state"]
_DONE, _MOVING, _CANCELLED = "done", "moving", "cancelled"
_LOOK_S = 0.5


@click.command()
@bootstrap_option
@json_option
@click.option("--to", "brokers", type=broker_ids, help="The brokers that shall have the replicas: 1,2,3.")
@click.option("-r", "--replicas", type=click.IntRange(min=1), help="How many of them. Default: all.")
@click.option("--drain", type=click.IntRange(min=0), metavar="BROKER", help="Every replica of BROKER on to others.")
@click.option("--file", type=click.File(), metavar="JSON", help="A plan as kafka-reassign-partitions has it.")
@click.option("--throttle", "bytes_per_s", type=click.IntRange(min=1), metavar="BYTES/S", help="Copy no faster.")
@click.option("--generate", is_flag=True, help="Only print the plan, as JSON for --file or for Kafka's tool.")
@click.option("--verify", is_flag=True, help="Only say how far it is; takes off throttles when all is done.")
@click.option("--cancel", is_flag=True, help="End what is under way and go back; takes off throttles.")
@click.option("--wait", is_flag=True, help="Show progress until all is done, then take off throttles.")
@click.argument("places", nargs=-1, type=place, metavar="[TOPIC[:PARTITION]]...")
def command(
    bootstrap: str,
    as_json: bool,
    brokers: list[int] | None,
    replicas: int | None,
    drain: int | None,
    file: Any,
    bytes_per_s: int | None,
    generate: bool,
    verify: bool,
    cancel: bool,
    wait: bool,
    places: Places,
) -> int:
    """Move replicas: of the topics or partitions named --to brokers, all of a broker (--drain), or as a --file says.

    The partitions of a topic begin with one broker of --to after the other, so that each leads its share; a partition
    named by itself begins with the first. --verify and --cancel without a plan are about all that is under way.

    Exits 1 if a move was refused or, with --verify, if not everything is where it shall be.
    """
    if generate + verify + cancel > 1:
        raise click.UsageError("--generate, --verify and --cancel exclude each other")
    with connected(bootstrap) as client:
        state = cluster_state(client)
        try:
            plan = _plan(state, brokers, replicas, drain, file, places)
        except PlanError as error:
            raise click.ClickException(str(error)) from error
        if cancel:
            return _cancel(client, state, plan, places, as_json=as_json)
        if verify:
            return _verify(client, state, plan, as_json=as_json)
        if plan is None:
            raise click.UsageError("nothing to do: --to, --drain or --file says what")
        if generate:
            click.echo(plan_as_json(plan))
            return 0
        return _execute(client, state, plan, bytes_per_s, wait=wait, as_json=as_json)


def _plan(
    state: ClusterState,
    brokers: list[int] | None,
    replicas: int | None,
    drain: int | None,
    file: Any,
    places: Places,
) -> dict[tuple[str, int], list[int]] | None:
    """What is wanted; None: nothing was said of it."""
    if sum(each is not None for each in (brokers, drain, file)) > 1:
        raise click.UsageError("--to, --drain and --file exclude each other")
    if replicas is not None and brokers is None:
        raise click.UsageError("--replicas needs --to")
    if brokers is not None:
        if not places:
            raise click.UsageError("--to needs a topic or a partition")
        return {
            where: target
            for place in places
            for where, target in moved_to(partitions_of(state, [place]), brokers, replicas).items()
        }
    if drain is not None:
        chosen = partitions_of(state, places) if places else state.partitions
        return drained(ClusterState(state.brokers, chosen), drain)
    if file is not None:
        try:
            return plan_from_json(file.read())
        except PlanError as error:
            raise click.ClickException(f"{Path(file.name).name}: {error}") from error
    return None


def _execute(
    client: Client, state: ClusterState, plan: Plan, bytes_per_s: int | None, *, wait: bool, as_json: bool
) -> int:
    if bytes_per_s is not None:
        throttle(client, state, plan, bytes_per_s)
    refused = reassign(client, plan)
    if wait:
        _watch(client, {place: target for place, target in plan.items() if place not in refused}, quiet=as_json)
        unthrottle(client, state, {topic for topic, _ in plan})
    rows = _rows(client, plan)
    for row in rows:
        error = refused.get((row["topic"], row["partition"]))
        if error is not None:
            row["state"] = str(error)
    show(rows, _COLUMNS, as_json=as_json)
    return int(bool(refused))


def _verify(client: Client, state: ClusterState, plan: Plan | None, *, as_json: bool) -> int:
    if plan is None:
        plan = {(move.topic, move.index): move.target for move in reassignments(client)}
    rows = _rows(client, plan)
    show(rows, _COLUMNS, as_json=as_json)
    done = all(row["state"] == _DONE for row in rows)
    if done:
        topics = {topic for topic, _ in plan} & {partition.topic for partition in state.partitions}
        unthrottle(client, state, topics)
    return int(not done)


def _cancel(client: Client, state: ClusterState, plan: Plan | None, places: Places, *, as_json: bool) -> int:
    moves = {(move.topic, move.index): move for move in reassignments(client)}
    if plan is not None:
        chosen = [each for each in plan if each in moves]
    elif places:
        named = {(each.topic, each.index) for each in partitions_of(state, places)}
        chosen = [each for each in moves if each in named]
    else:
        chosen = list(moves)
    refused = reassign(client, dict.fromkeys(chosen)) if chosen else {}
    rows: list[Row] = [
        {
            "topic": topic,
            "partition": index,
            "replicas": list(moves[topic, index].replicas),
            "target": [each for each in moves[topic, index].replicas if each not in moves[topic, index].adding],
            "state": str(refused.get((topic, index), _CANCELLED)),
        }
        for topic, index in chosen
    ]
    show(rows, _COLUMNS, as_json=as_json)
    unthrottle(client, state, {topic for topic, _ in chosen})
    return int(bool(refused))


def _rows(client: Client, plan: Plan) -> list[Row]:
    """Where each partition of the plan is, and how far on its way."""
    under_way = {(move.topic, move.index): move for move in reassignments(client)}
    state = cluster_state(client)
    there = {(each.topic, each.index): each for each in state.partitions}
    moving = [move for place, move in under_way.items() if place in plan]
    shares = copied(client, moving, {where: each.leader for where, each in there.items()})
    rows: list[Row] = []
    for where, target in plan.items():
        now = there.get(where)
        rows.append(
            {
                "topic": where[0],
                "partition": where[1],
                "replicas": [] if now is None else list(now.replicas),
                "target": list(target),
                "state": _state(under_way.get(where), None if now is None else now.replicas, target, shares.get(where)),
            }
        )
    return rows


def _state(
    move: Reassignment | None, replicas: Sequence[int] | None, target: Sequence[int], share: float | None
) -> str:
    if replicas is None:
        return "there is no such partition"
    if move is not None:
        elsewhere = "" if move.target == list(target) else f" to {','.join(map(str, move.target))} instead"
        return _MOVING + elsewhere + ("" if share is None else f", {share:.0%} copied")
    return _DONE if list(replicas) == list(target) else "not there"


def _watch(client: Client, plan: Mapping[tuple[str, int], Sequence[int]], *, quiet: bool) -> None:
    """Until none of the plan's partitions is on its way."""
    from odradek.cli.progress import MoveBars

    with MoveBars(len(plan), quiet=quiet) as bars:
        while True:
            moves = [move for move in reassignments(client) if (move.topic, move.index) in plan]
            if not moves:
                return
            leaders = {(each.topic, each.index): each.leader for each in cluster_state(client).partitions}
            bars.show(moves, copied(client, moves, leaders))
            time.sleep(_LOOK_S)
