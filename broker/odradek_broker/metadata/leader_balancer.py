"""The periodic election of preferred leaders, unless `auto.leader.rebalance.enable` is false.

Owns the interval of the elections. Leaves the choice of partitions to the controller's `balance_leaders`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from odradek_broker.config import BrokerConfig
from odradek_broker.logger import Logger
from odradek_broker.timers import TimerHandle, Timers
from odradek_controller.store import NotControllerError


class LeaderBalancer:
    """Calls a controller's `balance_leaders` every `leader.imbalance.check.interval.seconds`."""

    def __init__(self, config: BrokerConfig, timers: Timers, log: Logger) -> None:
        self._enabled = config.boolean("auto.leader.rebalance.enable")
        self._interval_ms = config.integer("leader.imbalance.check.interval.seconds") * 1000
        self._timers = timers
        self._log = log
        self._timer: TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, balance_leaders: Callable[[], Awaitable[None]]) -> None:
        """Begin the first interval, unless the configuration disables the elections."""
        if self._enabled:
            self._timer = self._timers.call_later(self._interval_ms, lambda: self._due(balance_leaders))

    def _due(self, balance_leaders: Callable[[], Awaitable[None]]) -> None:
        self.start(balance_leaders)
        self._task = asyncio.get_running_loop().create_task(self._balance(balance_leaders))

    async def _balance(self, balance_leaders: Callable[[], Awaitable[None]]) -> None:
        try:
            with suppress(NotControllerError):  # another controller has been elected, and balances leaders itself
                await balance_leaders()
        except Exception as error:
            self._log.error("leaders cannot be balanced", exc_info=error)

    def cancel(self) -> None:
        """Begin no further election. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def stop(self) -> None:
        """Begin no further election, and cancel the one in progress. Idempotent."""
        self.cancel()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
