"""Deliberate bugs in the code for ZooKeeper: the simulation finds each within a few seeds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from odradek_broker.zookeeper.control_request_adapter import ControlRequestAdapter
from odradek_controller.commands import alter_partition as alter_partition_command
from odradek_controller.image import ClusterImage
from odradek_controller.zookeeper import controller_election, controller_role, fenced, paths, znode_readers
from odradek_controller.zookeeper.client import Check, Delete, Set
from odradek_controller.zookeeper.reconciling import broker_change_records, first_records
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from simulation.client import Client, UnreachableError
from simulation.simulation import Failure, Script, Simulation, simulate
from simulation.zookeeper_brokers import ZooKeeperBrokers

pytestmark = pytest.mark.long
SEEDS = range(30)
Plant = Callable[[pytest.MonkeyPatch], None]


# -- bugs -----------------------------------------------------------------------------------------------------------


def controller_without_fenced_writes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fenced, "Check", lambda path, version: Check(paths.BROKER_IDS, 0))


def election_without_a_check_of_the_epoch_version(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(controller_election, "Set", lambda path, data, version: Set(path, data))


def broker_that_accepts_deposed_controllers(patch: pytest.MonkeyPatch) -> None:
    def stale(self: ControlRequestAdapter, request: Any) -> ErrorCode:
        is_stale = -1 < request.broker_epoch < self.broker_epoch
        return ErrorCode.STALE_BROKER_EPOCH if is_stale else ErrorCode.NONE

    patch.setattr(ControlRequestAdapter, "epoch_error", stale)


def broker_that_accepts_requests_for_an_old_broker_epoch(patch: pytest.MonkeyPatch) -> None:
    stale = ControlRequestAdapter.epoch_error

    def any_registration(self: ControlRequestAdapter, request: Any) -> ErrorCode:
        sent, request.broker_epoch = request.broker_epoch, self.broker_epoch
        try:
            return stale(self, request)
        finally:
            request.broker_epoch = sent

    patch.setattr(ControlRequestAdapter, "epoch_error", any_registration)


def controller_that_accepts_an_old_broker_epoch(patch: pytest.MonkeyPatch) -> None:
    decide = alter_partition_command.alter_partition

    def any_registration(image: ClusterImage, request: Any, *rest: Any) -> Any:
        epoch = image.brokers[request.broker_id].epoch
        request.broker_epoch, sent = epoch, request.broker_epoch
        try:
            return decide(image, request, *rest)
        finally:
            request.broker_epoch = sent

    patch.setattr(alter_partition_command, "alter_partition", any_registration)


def new_controller_that_misses_restarted_brokers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        controller_role, "first_records", lambda image, settings, doubtful: first_records(image, settings, {})
    )


def controller_that_misses_restarts(patch: pytest.MonkeyPatch) -> None:
    def changed(image: ClusterImage, present: Any, settings: Any) -> Any:
        as_before = {
            key: broker._replace(epoch=image.brokers[key].epoch) if key in image.brokers else broker
            for key, broker in present.items()
        }
        return broker_change_records(image, as_before, settings)

    patch.setattr(znode_readers, "broker_change_records", changed)


# -- scripts --------------------------------------------------------------------------------------------------------


async def _controller_and_another(simulation: Simulation) -> tuple[ZooKeeperBrokers, int, int]:
    cluster = simulation.cluster
    assert isinstance(cluster, ZooKeeperBrokers)
    await asyncio.sleep(2)
    controller = cluster.controller_id
    assert controller is not None
    return cluster, controller, next(broker for broker in cluster.ids if broker != controller)


async def _create(client: Client, broker: int, name: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name, 3, 3)
    try:
        connection = await client.connection(f"broker-{broker}")
        await connection.ask(CreateTopicsRequest([topic], 1000), 7, CreateTopicsResponse, 1.0)
    except UnreachableError:
        client.note("no response")


async def a_deposed_controller_is_cut_off(simulation: Simulation) -> None:
    """The deposed controller gets a request, and its delayed request to one broker arrives."""
    cluster, controller, other = await _controller_and_another(simulation)
    client = simulation.client("tool")
    directions = [(f"broker-{controller}", f"broker-{other}")]
    simulation.network.block(directions)
    await _create(client, controller, "requested-before")
    session = cluster.sessions[controller]
    cluster.zookeeper.cut(session, to_server=False)
    cluster.zookeeper.force(Delete(paths.CONTROLLER))
    await asyncio.sleep(1)
    simulation.network.unblock(directions)
    await _create(client, controller, "requested-after")
    await asyncio.sleep(3)
    cluster.processes[controller].call(cluster.zookeeper.heal, session)
    await asyncio.sleep(5)


async def a_broker_restarts_unseen_by_the_controller(simulation: Simulation) -> None:
    cluster, controller, other = await _controller_and_another(simulation)
    directions = [(f"broker-{controller}", f"broker-{other}")]
    simulation.network.block(directions)
    await _create(simulation.client("tool"), controller, "requested-before")
    session = cluster.sessions[controller]
    cluster.zookeeper.cut(session, to_server=False)
    cluster.zookeeper.expire(cluster.sessions[other])
    await asyncio.sleep(1)
    simulation.network.unblock(directions)
    await asyncio.sleep(2)
    cluster.processes[controller].call(cluster.zookeeper.heal, session)
    await asyncio.sleep(5)


async def a_leader_restarts_with_an_alter_partition_in_flight(simulation: Simulation) -> None:
    """The followers are cut off, so that the leader sends AlterPartition to remove them from the ISR."""
    cluster, controller, _ = await _controller_and_another(simulation)
    for leader in cluster.ids:
        if leader == controller:
            continue
        followers = [
            (f"broker-{other}", f"broker-{leader}") for other in cluster.ids if other not in (leader, controller)
        ]
        to_controller = (f"broker-{leader}", f"broker-{controller}")
        simulation.network.block(followers)
        simulation.network.slow_down(to_controller, 2.0)
        await asyncio.sleep(7)
        cluster.zookeeper.expire(cluster.sessions[leader])
        await asyncio.sleep(3)
        simulation.network.slow_down(to_controller, 0.0)
        simulation.network.unblock(followers)
        await asyncio.sleep(3)


async def controllers_change_rapidly(simulation: Simulation) -> None:
    cluster, _, _ = await _controller_and_another(simulation)
    cluster.zookeeper.slow_ms = 100
    for _ in range(100):
        await asyncio.sleep(simulation.chance.uniform(0.02, 0.2))
        cluster.zookeeper.force(Delete(paths.CONTROLLER))
    cluster.zookeeper.slow_ms = 0


PLANTED: list[tuple[Plant, str, Script | None]] = [
    (
        controller_without_fenced_writes,
        "a deposed controller changes",
        a_deposed_controller_is_cut_off,
    ),
    (
        election_without_a_check_of_the_epoch_version,
        "is elected with controller epoch",
        controllers_change_rapidly,
    ),
    (
        broker_that_accepts_deposed_controllers,
        "accepts .* of a deposed controller",
        a_deposed_controller_is_cut_off,
    ),
    (
        broker_that_accepts_requests_for_an_old_broker_epoch,
        "accepts .* for broker epoch",
        a_broker_restarts_unseen_by_the_controller,
    ),
    (
        controller_that_accepts_an_old_broker_epoch,
        "the controller accepts AlterPartitionRequest",
        a_leader_restarts_with_an_alter_partition_in_flight,
    ),
    (new_controller_that_misses_restarted_brokers, "retreats|goes back|OFFSET_OUT_OF_RANGE|was acknowledged", None),
    (controller_that_misses_restarts, "not within|OFFSET_OUT_OF_RANGE", None),
]


@pytest.mark.parametrize(("plant", "rule", "script"), PLANTED, ids=[plant.__name__ for plant, *_ in PLANTED])
def test_the_simulation_finds(plant: Plant, rule: str, script: Script | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if script is not None:
        assert _why(0, script) is None
    plant(monkeypatch)
    found = next(filter(None, (_why(seed, script) for seed in SEEDS)), "nothing")
    assert re.search(rule, found), found


def _why(seed: int, script: Script | None) -> str | None:
    try:
        simulate(seed, "zookeeper", script=script, workloads=())
    except Failure as failure:
        return failure.why
    return None
