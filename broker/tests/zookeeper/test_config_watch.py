"""Changed configurations reach a broker in spite of failures."""

from __future__ import annotations

import asyncio

import structlog
from broker.tests.manual_clock import ManualClock

from odradek_broker.timers import Timers
from odradek_broker.zookeeper.config_watch import Configs, ConfigWatch, Entities
from odradek_controller.configs.table import Resource
from odradek_controller.image import ConfigResource
from odradek_controller.zookeeper import bootstrap
from odradek_controller.zookeeper.paths import CONFIG_CHANGE, config
from odradek_controller.zookeeper.znodes import encode_config, encode_config_change
from zookeeper_double.server import ZooKeeperServerDouble


async def test_configurations_are_read_again_after_a_failure() -> None:
    clock = ManualClock()
    timers = Timers(clock, asyncio.get_running_loop())
    zookeeper = ZooKeeperServerDouble(timers)
    tool, session = await zookeeper.connect(), await zookeeper.connect()
    await bootstrap.create_persistent_paths(tool)
    tries: list[Configs] = []

    async def changed(configs: Configs, entities: Entities) -> None:
        tries.append(configs)
        if len(tries) == 1:
            raise OSError("this disk is full")

    watch = ConfigWatch(session, changed, timers.sleep, structlog.get_logger("test"))
    await watch.start()
    with structlog.testing.capture_logs() as logged:
        await tool.create(config("topics/t"), encode_config({"retention.ms": "5"}))
        await tool.create(CONFIG_CHANGE, encode_config_change("topics/t"), sequential=True)
        async with asyncio.timeout(10):
            while not logged:
                await asyncio.sleep(0)
            clock.advance_timeouts(1_000)
            while len(tries) < 2:
                await asyncio.sleep(0)
    assert tries == [{ConfigResource(Resource.TOPIC, "t"): {"retention.ms": "5"}}] * 2
    await watch.close()
    timers.close()
