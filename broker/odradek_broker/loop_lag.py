"""Loop lag: the delay with which the event loop runs callbacks, in real time, for the metrics."""

from __future__ import annotations

import asyncio

CHECK_S = 0.5


class LoopLag:
    """Measures from its construction to `stop`."""

    def __init__(self) -> None:
        self.seconds = 0.0
        """The lag at the last check."""
        self._loop = asyncio.get_running_loop()
        self._check_at(self._loop.time() + CHECK_S)

    def stop(self) -> None:
        self._handle.cancel()

    def _check_at(self, due: float) -> None:
        def check() -> None:
            self.seconds = max(self._loop.time() - due, 0.0)
            self._check_at(self._loop.time() + CHECK_S)

        self._handle = self._loop.call_at(due, check)
