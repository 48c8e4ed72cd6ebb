"""The leader balancer: when the controller elects preferred leaders."""

import asyncio

import pytest
import structlog
from broker.tests.manual_clock import ManualClock

from odradek_broker.config import BrokerConfig
from odradek_broker.metadata.leader_balancer import LeaderBalancer
from odradek_broker.timers import Timers
from odradek_controller.store import NotControllerError


class Controller:
    """Counts elections; raises `error` in each, if there is one."""

    def __init__(self) -> None:
        self.elections = 0
        self.error: Exception | None = None

    async def balance_leaders(self) -> None:
        self.elections += 1
        if self.error is not None:
            raise self.error


class World:
    def __init__(self, **static: str) -> None:
        self.clock = ManualClock()
        log = structlog.get_logger()
        timers = Timers(self.clock, asyncio.get_running_loop(), log)
        config = BrokerConfig({"leader.imbalance.check.interval.seconds": "5"} | static)
        self.controller = Controller()
        self.balancer = LeaderBalancer(config, timers, log)
        self.balancer.start(self.controller.balance_leaders)

    async def pass_time(self, seconds: int) -> None:
        self.clock.advance_timeouts(seconds * 1000)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_leaders_are_balanced_at_every_interval() -> None:
    world = World()
    await world.pass_time(4)
    assert world.controller.elections == 0
    await world.pass_time(1)
    assert world.controller.elections == 1
    await world.pass_time(5)
    assert world.controller.elections == 2
    await world.balancer.stop()
    await world.pass_time(5)
    assert world.controller.elections == 2


async def test_leaders_are_not_balanced_when_disabled() -> None:
    world = World(**{"auto.leader.rebalance.enable": "false"})
    await world.pass_time(5)
    assert world.controller.elections == 0


@pytest.mark.parametrize(("error", "logged"), [(OSError("full"), True), (NotControllerError("gone"), False)])
async def test_a_failed_election_is_logged_and_the_next_one_comes(error: Exception, logged: bool) -> None:
    world = World()
    world.controller.error = error
    with structlog.testing.capture_logs() as lines:
        await world.pass_time(5)
        await world.pass_time(5)
    assert world.controller.elections == 2
    assert [line["event"] for line in lines] == ["leaders cannot be balanced"] * 2 * logged
