"""The partitions of an internal topic on one broker: loading, look-up, and the interval of the cleanup."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from broker.tests.manual_clock import ManualClock

from odradek_broker.coordination.coordinator_runtime import CoordinatorRuntime
from odradek_broker.coordination.durable_partition import CoordinatorState
from odradek_broker.timers import Timers
from odradek_controller.image import ClusterImage
from odradek_wire.errors import ErrorCode

INTERVAL_MS = 600


class Led:
    """A partition that is loaded when the test says so."""

    def __init__(self, state: CoordinatorState = CoordinatorState.ACTIVE) -> None:
        self.state = CoordinatorState.LOADING
        self._loaded = state
        self.cleanups = 0

    def load(self) -> None:
        self.state = self._loaded

    def resign(self) -> None:
        self.state = CoordinatorState.CLOSED

    def clean_up(self) -> None:
        self.cleanups += 1


class Scheduler:
    def call_soon(self, callback: Callable[[], object]) -> None:
        callback()

    def call_later(self, delay: float, callback: Callable[[], object]) -> Scheduler:
        return self

    def cancel(self) -> None: ...


def runtime(clock: ManualClock) -> CoordinatorRuntime[Led]:
    return CoordinatorRuntime(
        topic="__consumer_offsets",
        new_partition_count=lambda: 1,
        image=ClusterImage,
        timers=Timers(clock, Scheduler()),
        cleanup_interval_ms=lambda: INTERVAL_MS,
        clean_up=Led.clean_up,
    )


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (CoordinatorState.LOADING, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (CoordinatorState.UNCOMMITTED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (CoordinatorState.FAILED, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_key_is_found_once_its_partition_is_active(state: CoordinatorState, error: ErrorCode) -> None:
    coordinator = runtime(ManualClock())
    assert coordinator.find("g") == ErrorCode.NOT_COORDINATOR
    led = Led(state)
    coordinator.load(0, led)
    assert (coordinator.find("g"), coordinator.active) == (error, [])
    led.state = CoordinatorState.ACTIVE
    assert (coordinator.find("g"), coordinator.active) == (led, [led])
    coordinator.unload(0)
    assert (coordinator.find("g"), led.state) == (ErrorCode.NOT_COORDINATOR, CoordinatorState.CLOSED)


def test_active_partitions_are_cleaned_up_at_the_interval_until_close() -> None:
    clock = ManualClock()
    coordinator = runtime(clock)
    active, loading = Led(), Led(CoordinatorState.LOADING)
    coordinator.load(0, active)
    coordinator.load(1, loading)
    clock.advance_timeouts(INTERVAL_MS - 1)
    assert active.cleanups == 0
    clock.advance_timeouts(1)
    clock.advance_timeouts(INTERVAL_MS)
    assert (active.cleanups, loading.cleanups) == (2, 0)
    coordinator.close()
    clock.advance_timeouts(INTERVAL_MS)
    assert (active.cleanups, active.state) == (2, CoordinatorState.CLOSED)
