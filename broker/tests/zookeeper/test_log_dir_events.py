"""Notifications that a log directory has failed: one for each failure, in spite of lost connections and errors."""

from __future__ import annotations

import asyncio

import structlog
from broker.tests.manual_clock import ManualClock

from odradek_broker.timers import Timers
from odradek_broker.zookeeper.log_dir_events import LogDirEvents
from odradek_controller.zookeeper import paths
from zookeeper_double.server import ZooKeeperClientDouble, ZooKeeperServerDouble


async def _until_notified(tool: ZooKeeperClientDouble, count: int) -> None:
    async with asyncio.timeout(10):
        while len(await tool.children(paths.LOG_DIR_EVENTS)) < count:
            await asyncio.sleep(0)


async def test_a_replica_lost_during_the_write_gets_another_notification() -> None:
    timers = Timers(ManualClock(), asyncio.get_running_loop())
    zookeeper = ZooKeeperServerDouble(timers)
    tool, session = await zookeeper.connect(), await zookeeper.connect()
    await tool.create(paths.LOG_DIR_EVENTS)
    events = LogDirEvents(session, 1, timers.sleep, structlog.get_logger("test"))
    zookeeper.cut(session, to_server=False)
    events.notify()
    await _until_notified(tool, 1)
    events.notify()
    zookeeper.heal(session)
    await _until_notified(tool, 2)
    await events.close()
    timers.close()


async def test_a_notification_is_written_after_the_connection_was_lost() -> None:
    clock = ManualClock()
    timers = Timers(clock, asyncio.get_running_loop())
    zookeeper = ZooKeeperServerDouble(timers)
    tool, session = await zookeeper.connect(), await zookeeper.connect()
    await tool.create(paths.LOG_DIR_EVENTS)
    with structlog.testing.capture_logs() as logged:
        events = LogDirEvents(session, 1, timers.sleep, structlog.get_logger("test"))
        zookeeper.cut(session)
        events.notify()
        async with asyncio.timeout(10):
            while session.connected:
                await asyncio.sleep(0)
                clock.advance_timeouts(1_000)
            zookeeper.heal(session)
            while not await tool.children(paths.LOG_DIR_EVENTS):
                await asyncio.sleep(0)
                clock.advance_timeouts(100)
    assert logged == []
    await events.close()
    timers.close()


async def test_a_failed_notification_is_retried_after_a_pause() -> None:
    clock = ManualClock()
    timers = Timers(clock, asyncio.get_running_loop())
    zookeeper = ZooKeeperServerDouble(timers)
    tool, session = await zookeeper.connect(), await zookeeper.connect()
    with structlog.testing.capture_logs() as logged:
        events = LogDirEvents(session, 1, timers.sleep, structlog.get_logger("test"))
        events.notify()
        async with asyncio.timeout(10):
            while not logged:
                await asyncio.sleep(0)
    assert [each["event"] for each in logged] == [
        "log directory failure could not be reported to the controller, retrying"
    ]
    await tool.create(paths.LOG_DIR_EVENTS)
    clock.advance_timeouts(1_000)
    await _until_notified(tool, 1)
    await events.close()
    timers.close()
