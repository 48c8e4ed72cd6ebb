"""A broker on a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from odradek.client.client import format_address
from odradek.hosts import fault_rules
from odradek.hosts.host import Fault, LogEntry, NotRunningError
from odradek.hosts.loops import new_event_loop
from odradek.logs import CapturedLog
from odradek_broker.clock import Clock
from odradek_broker.node import Node
from odradek_broker.report import Logger

T = TypeVar("T")


class ThreadHost:
    """The thread and its loop live from `start` to `stop`; log, clock and faults live as long as the host."""

    def __init__(self, logger: Logger | None = None) -> None:
        """Without a `logger` the log is kept in memory, in `logs`."""
        self._log = CapturedLog()
        self._logger = self._log.logger if logger is None else logger
        self._clock = Clock()
        self._faults: list[Fault] = []
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def logs(self) -> list[LogEntry]:
        return self._log.entries

    def start(self, settings: Mapping[str, str]) -> str:
        if self._node is not None:
            raise RuntimeError("the cluster is running already")
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name="odradek", daemon=True)
        self._thread.start()
        try:
            self._node = self._await(Node.start(settings, log=self._logger, clock=self._clock))
        except BaseException:
            self._end_thread()
            raise
        for fault in self._faults:
            self._await(self._add(self._node, fault))
        listener = self._node.listeners[0]
        return format_address(listener.advertised_host, listener.advertised_port)

    def stop(self) -> None:
        if self._node is not None:
            node, self._node = self._node, None
            try:
                self._await(node.stop())
            finally:
                self._end_thread()

    def kill(self) -> None:
        if self._node is not None:
            node, self._node = self._node, None
            try:
                self._await(node.kill())
            finally:
                self._end_thread()

    def reset(self, topics: Mapping[str, int]) -> None:
        node = self._running()
        self._faults.clear()
        self._await(self._reset(node, topics))

    def advance(self, wall_ms: int, timeouts_ms: int) -> None:
        if self._node is None:
            self._clock.advance_wall(wall_ms)
            self._clock.advance_timeouts(timeouts_ms)
        else:
            self._await(self._advance(wall_ms, timeouts_ms))

    def add_fault(self, fault: Fault) -> None:
        self._faults.append(fault)
        if self._node is not None:
            self._await(self._add(self._node, fault))

    def clear_faults(self) -> None:
        self._faults.clear()
        if self._node is not None:
            self._await(self._clear(self._node))

    # -- on the loop's thread ---------------------------------------------------------------------------------------

    async def _reset(self, node: Node, topics: Mapping[str, int]) -> None:
        # First of all: the topics that come now are to meet no fault and to begin at the real time.
        fault_rules.clear(node.broker.interceptors)
        self._clock.restore_wall()
        await node.reset(topics)

    async def _advance(self, wall_ms: int, timeouts_ms: int) -> None:
        self._clock.advance_wall(wall_ms)
        self._clock.advance_timeouts(timeouts_ms)

    async def _add(self, node: Node, fault: Fault) -> None:
        fault_rules.add(fault, node.broker.interceptors)

    async def _clear(self, node: Node) -> None:
        fault_rules.clear(node.broker.interceptors)

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        # Only this thread's current loop is set, and only because asyncio's own code asks for it.
        asyncio.set_event_loop(loop)
        loop.run_forever()

    # -- on the caller's thread -------------------------------------------------------------------------------------

    def _running(self) -> Node:
        if self._node is None:
            raise NotRunningError
        return self._node

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None
