"""A host on a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from odradek.client.client import format_address
from odradek.exceptions import AlreadyRunningError, DataDirectoryError, NotRunningError
from odradek.hosts import fault_interceptors
from odradek.hosts.event_loop import log_refused_accepts, new_event_loop
from odradek.hosts.host import BrokerSettings, Fault, LogEntry
from odradek.logs import CapturedLog
from odradek_broker.clock import Clock
from odradek_broker.embedded import EmbeddedCluster
from odradek_broker.logger import Logger
from odradek_broker.node import Node
from odradek_log.log_errors import LogDirectoryError

T = TypeVar("T")


class ThreadHost:
    """A host whose thread and event loop live from `start` to `stop`; log, clock and faults stay with the host."""

    def __init__(self, logger: Logger | None = None) -> None:
        """Without a `logger`, keep the log in memory, in `logs`."""
        self._log = CapturedLog()
        self._logger = self._log.logger if logger is None else logger
        self._clock = Clock()
        self._faults: list[Fault] = []
        self._cluster: EmbeddedCluster | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def logs(self) -> list[LogEntry]:
        return self._log.entries

    @property
    def logger(self) -> Logger:
        return self._logger

    def start(self, settings: Sequence[BrokerSettings]) -> dict[int, str]:
        if self._cluster is not None:
            raise AlreadyRunningError
        self._loop = new_event_loop()
        log_refused_accepts(self._loop, self._logger)
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name="odradek", daemon=True)
        self._thread.start()
        try:
            self._cluster = cluster = self._await(EmbeddedCluster.start(settings, log=self._logger, clock=self._clock))
        except BaseException as error:
            self._end_thread()
            if isinstance(error, LogDirectoryError):
                raise DataDirectoryError(str(error)) from error
            raise
        for node in cluster.nodes.values():
            self._await(self._add_faults(node, self._faults))
        return {node.id: _address(node) for node in cluster.nodes.values()}

    def stop(self) -> None:
        if self._cluster is not None:
            cluster, self._cluster = self._cluster, None
            try:
                self._await(cluster.stop())
            finally:
                self._end_thread()

    def kill(self) -> None:
        if self._cluster is not None:
            cluster, self._cluster = self._cluster, None
            try:
                self._await(cluster.kill())
            finally:
                self._end_thread()

    def start_broker(self, settings: BrokerSettings) -> dict[int, str]:
        try:
            node = self._await(self._running().start_broker(settings))
        except LogDirectoryError as error:
            raise DataDirectoryError(str(error)) from error
        self._await(self._add_faults(node, self._faults))
        return {node.id: _address(node)}

    def stop_broker(self, broker: int) -> None:
        self._await(self._running(broker).stop_broker(broker))

    def kill_broker(self, broker: int) -> None:
        self._await(self._running(broker).kill_broker(broker))

    def reset(self, topics: Mapping[str, int]) -> None:
        cluster = self._running()
        self._faults.clear()
        self._await(self._reset(cluster, topics))

    def advance(self, wall_ms: int, timeouts_ms: int) -> None:
        if self._cluster is None:
            self._clock.advance_wall(wall_ms)
            self._clock.advance_timeouts(timeouts_ms)
        else:
            self._await(self._advance(wall_ms, timeouts_ms))

    def delete_old_segments(self) -> None:
        self._await(self._delete_old_segments(self._running()))

    def clean_logs(self) -> None:
        self._await(self._running().clean_logs())

    def add_fault(self, fault: Fault) -> None:
        self._faults.append(fault)
        if self._cluster is not None:
            for node in self._cluster.nodes.values():
                self._await(self._add_faults(node, [fault]))

    def clear_faults(self) -> None:
        self._faults.clear()
        if self._cluster is not None:
            self._await(self._clear_faults(self._cluster))

    # -- on the loop's thread ---------------------------------------------------------------------------------------

    async def _reset(self, cluster: EmbeddedCluster, topics: Mapping[str, int]) -> None:
        # Before the reset, because no fault may affect the creation of its topics, and they need the real time.
        await self._clear_faults(cluster)
        self._clock.restore_wall()
        await cluster.reset(topics)

    async def _advance(self, wall_ms: int, timeouts_ms: int) -> None:
        self._clock.advance_wall(wall_ms)
        self._clock.advance_timeouts(timeouts_ms)

    async def _delete_old_segments(self, cluster: EmbeddedCluster) -> None:
        cluster.delete_old_segments()

    async def _add_faults(self, node: Node, faults: Iterable[Fault]) -> None:
        for fault in faults:
            if fault.broker in (None, node.id):
                fault_interceptors.add(fault, node.broker.interceptors)

    async def _clear_faults(self, cluster: EmbeddedCluster) -> None:
        for node in cluster.nodes.values():
            fault_interceptors.clear(node.broker.interceptors)

    @staticmethod
    def _run(loop: asyncio.AbstractEventLoop) -> None:
        # Only for this thread: asyncio's own code needs a current loop.
        asyncio.set_event_loop(loop)
        loop.run_forever()

    # -- on the caller's thread -------------------------------------------------------------------------------------

    def _running(self, broker: int | None = None) -> EmbeddedCluster:
        if self._cluster is None:
            raise NotRunningError
        if broker is not None and broker not in self._cluster.nodes:
            raise NotRunningError(broker)
        return self._cluster

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


def _address(node: Node) -> str:
    listener = node.listeners[0]
    return format_address(listener.advertised_host, listener.advertised_port)
