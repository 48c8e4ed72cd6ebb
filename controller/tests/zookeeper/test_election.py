"""The controller election: terms, resignations, and fenced controllers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from controller.tests.zookeeper.cluster import Reports
from controller.tests.zookeeper.kit import DoubleWorld, World

from odradek_controller.store import NotControllerError
from odradek_controller.zookeeper import paths
from odradek_controller.zookeeper.client import Create, ZooKeeper
from odradek_controller.zookeeper.controller_election import NO_CONTROLLER, ControllerCandidate
from odradek_controller.zookeeper.fenced import ControllerTerm, FencedWriter
from odradek_controller.zookeeper.znodes import ControllerZnode
from odradek_log.reporting import Reporter, StandardReporter


class Broker:
    """A candidate with its own session, and its recorded calls."""

    def __init__(self, world: World, zk: ZooKeeper, broker_id: int, reporter: Reporter) -> None:
        self.zk = zk
        self.id = broker_id
        self.events: list[ControllerTerm | str] = []
        self.candidate = ControllerCandidate(
            zk,
            broker_id,
            wall_ms=lambda: 1_700_000_000_000,
            sleep=world.sleep,
            elected=self.events.append,
            resigned=lambda: self.events.append("resigned"),
            reporter=reporter,
        )

    @property
    def leads(self) -> bool:
        return self.candidate.term is not None


class Election:
    def __init__(self, world: World) -> None:
        self.world = world
        self.brokers: list[Broker] = []

    async def join(self, reporter: Reporter | None = None) -> Broker:
        zk = await self.world.connect()
        broker = Broker(self.world, zk, len(self.brokers) + 1, reporter or StandardReporter())
        self.brokers.append(broker)
        broker.candidate.start()
        return broker

    async def until_led_by(self, broker: Broker) -> None:
        await self.world.until(
            lambda: broker.leads and all(other.candidate.controller_id == broker.id for other in self.brokers)
        )


@asynccontextmanager
async def election(world: World) -> AsyncIterator[Election]:
    async with AsyncExitStack() as stack:
        stack.push_async_callback(world.close)
        found = Election(world)
        yield found
        for broker in found.brokers:
            await broker.candidate.close()


async def test_the_first_candidate_is_elected_and_all_see_it() -> None:
    async with election(DoubleWorld()) as found:
        first = await found.join()
        await found.until_led_by(first)
        second = await found.join()
        await found.until_led_by(first)
        assert first.events == [ControllerTerm(1, 1, first.zk.session_id)]
        assert second.events == []
        data, stat = await second.zk.get(paths.CONTROLLER)
        assert data == b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}'
        assert stat.ephemeral_owner == first.zk.session_id
        assert (await second.zk.get(paths.CONTROLLER_EPOCH))[0] == b"1"


async def test_one_of_many_candidates_is_elected() -> None:
    async with election(DoubleWorld()) as found:
        brokers = [await found.join() for _ in range(5)]
        await found.world.until(lambda: all(broker.candidate.controller_id != NO_CONTROLLER for broker in brokers))
        assert [len(broker.events) for broker in brokers].count(1) == 1
        assert {broker.candidate.controller_id for broker in brokers} == {b.id for b in brokers if b.leads}


async def test_a_resignation_allows_an_election_in_the_next_epoch() -> None:
    async with election(DoubleWorld()) as found:
        first = await found.join()
        await found.until_led_by(first)
        second = await found.join()
        await found.until_led_by(first)
        term = first.candidate.term
        assert term is not None
        first.candidate.resign(term)
        assert first.events == [term, "resigned"]
        await found.world.until(lambda: first.leads or second.leads)
        leader = first if first.leads else second
        assert leader.candidate.term == ControllerTerm(2, 2, leader.zk.session_id)
        first.candidate.resign(term)  # a term that has ended before
        await found.until_led_by(leader)


async def test_closing_a_candidate_deletes_the_controller_znode() -> None:
    async with election(DoubleWorld()) as found:
        first = await found.join()
        await found.until_led_by(first)
        second = await found.join()
        await found.until_led_by(first)
        await first.candidate.close()
        assert first.events[1:] == ["resigned"]
        await found.world.until(lambda: second.leads)
        assert second.events == [ControllerTerm(2, 2, second.zk.session_id)]


async def test_a_disconnected_controller_is_replaced_and_fenced() -> None:
    async with election(DoubleWorld()) as found:
        first = await found.join()
        await found.until_led_by(first)
        second = await found.join()
        await found.until_led_by(first)
        term = first.candidate.term
        assert term is not None
        found.world.cut(first.zk)
        await found.world.until(lambda: second.leads)
        assert first.leads  # it does not know yet
        lost: list[str] = []
        writing = asyncio.ensure_future(FencedWriter(first.zk, term, lost.append).write([Create("/late")]))
        found.world.heal(first.zk)
        await found.world.until(writing.done)
        with pytest.raises(NotControllerError):
            writing.result()
        assert len(lost) == 1
        assert await second.zk.exists("/late") is None
        await found.until_led_by(second)
        assert first.events == [term, "resigned"]


async def test_a_reconnected_session_keeps_its_term() -> None:
    async with election(DoubleWorld()) as found:
        first = await found.join()
        await found.until_led_by(first)
        found.world.drop(first.zk)
        await found.world.until(lambda: first.zk.connected)
        await found.until_led_by(first)
        assert first.events == [ControllerTerm(1, 1, first.zk.session_id)]
        # The watch was registered again: it still sees the deletion of /controller.
        await first.zk.delete(paths.CONTROLLER)
        await found.world.until(lambda: first.candidate.term == ControllerTerm(2, 2, first.zk.session_id))
        assert first.events == [
            ControllerTerm(1, 1, first.zk.session_id),
            "resigned",
            ControllerTerm(2, 2, first.zk.session_id),
        ]


async def test_an_election_whose_response_was_lost_is_recognized() -> None:
    world = DoubleWorld(latency_ms=5)
    async with election(world) as found:
        first = await found.join()
        watcher = await world.connect()
        await world.until(lambda: _exists(watcher, paths.CONTROLLER))
        world.drop(first.zk)
        await world.until(lambda: first.leads)
        assert first.events == [ControllerTerm(1, 1, first.zk.session_id)]


async def _exists(zk: ZooKeeper, path: str) -> bool:
    return await zk.exists(path) is not None


async def test_a_broker_does_not_continue_the_term_of_its_earlier_process() -> None:
    async with election(DoubleWorld()) as found:
        earlier = await found.world.connect()
        await earlier.create(paths.CONTROLLER, ControllerZnode(1).encode(), ephemeral=True)
        broker = await found.join()
        await found.world.until(lambda: broker.candidate.controller_id == 1)
        assert broker.events == []
        await earlier.close()
        await found.world.until(lambda: broker.leads)


async def test_a_term_ends_before_listeners_learn_of_the_expired_session() -> None:
    world = DoubleWorld()
    async with election(world) as found:
        first = await found.join()
        await found.until_led_by(first)
        order: list[str] = []
        first.zk.listen(lambda event: order.append(f"{event.value} {len(first.events)}"))
        world.server.expire(first.zk)  # type: ignore[arg-type]  # of this world all clients are doubles
        await world.until(lambda: first.leads and len(first.events) == 3)
        assert order[:2] == ["disconnected 1", "expired 2"]
        assert first.candidate.term == ControllerTerm(2, 2, first.zk.session_id)


async def test_a_broker_is_elected_when_a_damaged_epoch_is_repaired() -> None:
    async with election(DoubleWorld()) as found:
        tool, reports = await found.world.connect(), Reports()
        await tool.create(paths.CONTROLLER_EPOCH, b"many")
        broker = await found.join(reports)
        await found.world.until(lambda: bool(reports.logged))
        assert "controller election failed, retrying" in reports.logged[0]
        assert "/controller_epoch: b'many' is not a number" in reports.logged[0]
        assert broker.events == []
        await tool.set(paths.CONTROLLER_EPOCH, b"6")
        await found.world.until(lambda: broker.events == [ControllerTerm(7, 2, broker.zk.session_id)])
