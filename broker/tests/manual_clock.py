"""A clock that only a test moves."""

from __future__ import annotations

from odradek_broker.clock import NANOSECONDS_PER_MS, Clock


class ManualClock(Clock):
    """A `Clock` whose times change only by `advance_wall` and `advance_timeouts`."""

    __slots__ = ()

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        super().__init__(lambda: wall_ms * NANOSECONDS_PER_MS, lambda: 0)
