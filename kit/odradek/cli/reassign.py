"""`odradek reassign`: plan, start, watch and cancel the reassignment of replicas to other brokers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from odradek.cli.output import bootstrap_option, connected, json_option, show
from odradek.cli.partition_arguments import broker_ids, partitions_of, topic_partition
from odradek.client import Client
from odradek.client.cluster_state import ClusterState, cluster_state
from odradek.client.reassignment_plans import (
    ReassignmentPlan,
    ReassignmentPlanError,
    plan_as_json,
    plan_from_json,
    plan_to_drain,
    plan_to_move,
)
from odradek.client.reassignments import (
    Reassignment,
    TopicPartition,
    copied_shares,
    reassign,
    reassignments,
)
from odradek.client.throttles import throttle, unthrottle

Arguments = tuple[tuple[str, int | None], ...]
"""The topics (with None) and partitions of the command line."""
Row = dict[str, Any]

_COLUMNS = ["topic", "partition", "replicas", "target", "state"]
_DONE, _MOVING, _CANCELLED = "done", "moving", "cancelled"
_POLL_S = 0.5


@click.command()
@bootstrap_option
@json_option
@click.option("--to", "brokers", type=broker_ids, metavar="1,2,3", help="Move the replicas to these brokers.")
@click.option("-r", "--replicas", type=click.IntRange(min=1), help="Replicas per partition. Default: all of --to.")
@click.option("--drain", type=click.IntRange(min=0), metavar="BROKER", help="Move all replicas of BROKER to others.")
@click.option(
    "--file",
    type=click.File(encoding="utf-8", errors="replace"),
    metavar="FILE",
    help="Move the replicas as in this JSON plan of kafka-reassign-partitions.",
)
@click.option(
    "--throttle",
    "bytes_per_s",
    type=click.IntRange(min=1),
    metavar="BYTES/S",
    help="Limit the copying of each broker to this rate.",
)
@click.option(
    "--generate", is_flag=True, help="Only print the plan, as JSON for --file or for kafka-reassign-partitions."
)
@click.option("--verify", is_flag=True, help="Only show the progress; remove throttles when all is done.")
@click.option("--cancel", is_flag=True, help="Cancel reassignments in progress and remove throttles.")
@click.option("--wait", is_flag=True, help="Show the progress until all is done, then remove throttles.")
@click.argument("arguments", nargs=-1, type=topic_partition, metavar="[TOPIC[:PARTITION]]...")
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
    arguments: Arguments,
) -> int:
    """Move replicas to other brokers.

    Give topics or partitions and --to, or --drain, or --file. With --to the brokers take turns as the first replica,
    the preferred leader, of a topic's partitions; for one partition the first broker of --to is the preferred leader.
    Without a plan, --verify and --cancel apply to all reassignments in progress.

    Exits 1 if the controller refused a reassignment or, with --verify, if one is not done.
    """
    if generate + verify + cancel > 1:
        raise click.UsageError("--generate, --verify and --cancel cannot be combined")
    with connected(bootstrap) as client:
        state = cluster_state(client)
        try:
            plan = _plan(state, brokers, replicas, drain, file, arguments)
        except ReassignmentPlanError as error:
            raise click.ClickException(str(error)) from error
        if cancel:
            return _cancel(client, state, plan, arguments, as_json=as_json)
        if verify:
            return _verify(client, state, plan, as_json=as_json)
        if plan is None:
            raise click.UsageError("nothing to do: give --to, --drain or --file")
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
    arguments: Arguments,
) -> dict[TopicPartition, list[int]] | None:
    """Return the plan that the options describe, or None without --to, --drain and --file."""
    if sum(each is not None for each in (brokers, drain, file)) > 1:
        raise click.UsageError("--to, --drain and --file cannot be combined")
    if replicas is not None and brokers is None:
        raise click.UsageError("--replicas needs --to")
    if brokers is not None:
        if not arguments:
            raise click.UsageError("--to needs a topic or a partition")
        plan: dict[TopicPartition, list[int]] = {}
        for argument in arguments:
            plan |= plan_to_move(partitions_of(state, [argument]), brokers, replicas)
        return plan
    if drain is not None:
        chosen = partitions_of(state, arguments) if arguments else state.partitions
        return plan_to_drain(ClusterState(state.brokers, chosen), drain)
    if file is not None:
        try:
            return plan_from_json(file.read())
        except ReassignmentPlanError as error:
            raise click.ClickException(f"{Path(file.name).name}: {error}") from error
    return None


def _execute(
    client: Client, state: ClusterState, plan: ReassignmentPlan, bytes_per_s: int | None, *, wait: bool, as_json: bool
) -> int:
    if bytes_per_s is not None:
        throttle(client, state, plan, bytes_per_s)
    refused = reassign(client, plan)
    if wait:
        accepted = {partition: target for partition, target in plan.items() if partition not in refused}
        _wait_until_done(client, accepted, quiet=as_json)
        unthrottle(client, state, {topic for topic, _ in plan})
    rows = _rows(client, plan)
    for row in rows:
        error = refused.get((row["topic"], row["partition"]))
        if error is not None:
            row["state"] = str(error)
    show(rows, _COLUMNS, as_json=as_json)
    return int(bool(refused))


def _verify(client: Client, state: ClusterState, plan: ReassignmentPlan | None, *, as_json: bool) -> int:
    if plan is None:
        plan = {(move.topic, move.index): move.target for move in reassignments(client)}
    rows = _rows(client, plan)
    show(rows, _COLUMNS, as_json=as_json)
    done = all(row["state"] == _DONE for row in rows)
    if done:
        topics = {topic for topic, _ in plan} & {partition.topic for partition in state.partitions}
        unthrottle(client, state, topics)
    return int(not done)


def _cancel(
    client: Client, state: ClusterState, plan: ReassignmentPlan | None, arguments: Arguments, *, as_json: bool
) -> int:
    moves = {(move.topic, move.index): move for move in reassignments(client)}
    if plan is not None:
        chosen = [each for each in plan if each in moves]
    elif arguments:
        named = {(each.topic, each.index) for each in partitions_of(state, arguments)}
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


def _rows(client: Client, plan: ReassignmentPlan) -> list[Row]:
    """Return a row for each partition of the plan: its current replicas, its target and its progress."""
    in_progress = {(move.topic, move.index): move for move in reassignments(client)}
    partitions = {(each.topic, each.index): each for each in cluster_state(client).partitions}
    moving = [move for partition, move in in_progress.items() if partition in plan]
    shares = copied_shares(client, moving, {key: each.leader for key, each in partitions.items()})
    rows: list[Row] = []
    for key, target in plan.items():
        replicas = partitions[key].replicas if key in partitions else None
        rows.append(
            {
                "topic": key[0],
                "partition": key[1],
                "replicas": list(replicas or ()),
                "target": list(target),
                "state": _state(in_progress.get(key), replicas, target, shares.get(key)),
            }
        )
    return rows


def _state(
    move: Reassignment | None, replicas: Sequence[int] | None, target: Sequence[int], share: float | None
) -> str:
    if replicas is None:
        return "partition does not exist"
    if move is not None:
        other = "" if move.target == list(target) else f" to {','.join(map(str, move.target))} instead"
        return _MOVING + other + ("" if share is None else f", {share:.0%} copied")
    return _DONE if list(replicas) == list(target) else "not started"


def _wait_until_done(client: Client, plan: Mapping[TopicPartition, Sequence[int]], *, quiet: bool) -> None:
    """Show the progress until no partition of the plan has a reassignment."""
    from odradek.cli.reassignment_progress import ReassignmentProgress

    with ReassignmentProgress(len(plan), quiet=quiet) as progress:
        while True:
            moves = [move for move in reassignments(client) if (move.topic, move.index) in plan]
            if not moves:
                return
            leaders = {(each.topic, each.index): each.leader for each in cluster_state(client).partitions}
            progress.show(moves, copied_shares(client, moves, leaders))
            time.sleep(_POLL_S)
