"""Clocks and timers: two independent clocks, and a defined order of firing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from broker.tests.manual_clock import ManualClock

from odradek_broker.timers import Timers


class Loop:
    """A scheduler that never runs by itself: the clock is moved by hand."""

    def call_soon(self, callback: Callable[[], object]) -> object:
        return callback()

    def call_later(self, delay: float, callback: Callable[[], object]) -> Loop:
        return self

    def cancel(self) -> None:
        pass


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(wall_ms=1000)


@pytest.fixture
def timers(clock: ManualClock) -> Timers:
    return Timers(clock, Loop())


def test_each_clock_is_moved_on_its_own(clock: ManualClock) -> None:
    clock.advance_wall(50)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1050, 0)
    clock.advance_timeouts(7)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1050, 7)
    clock.advance_wall(-100)
    assert clock.wall_ms() == 950
    clock.restore_wall()
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1000, 7)


def test_timers_fire_by_deadline_and_then_by_registration(clock: ManualClock, timers: Timers) -> None:
    fired: list[str] = []
    timers.call_later(20, lambda: fired.append("late"))
    timers.call_later(10, lambda: fired.append("first"))
    timers.call_later(10, lambda: fired.append("second"))
    clock.advance_timeouts(9)
    assert fired == []
    clock.advance_timeouts(11)
    assert fired == ["first", "second", "late"]


def test_a_cancelled_timer_does_not_fire(clock: ManualClock, timers: Timers) -> None:
    fired: list[str] = []
    handle = timers.call_later(10, lambda: fired.append("cancelled"))
    timers.call_later(10, lambda: fired.append("kept"))
    handle.cancel()
    handle.cancel()
    clock.advance_timeouts(10)
    assert fired == ["kept"]


def test_a_due_timer_that_a_timer_registers_fires(clock: ManualClock, timers: Timers) -> None:
    fired: list[str] = []

    def outer() -> None:
        timers.call_later(0, lambda: fired.append("inner"))

    timers.call_later(10, outer)
    clock.advance_timeouts(10)
    assert fired == ["inner"]


def test_many_cancelled_timers_leave_the_others_in_order(clock: ManualClock, timers: Timers) -> None:
    fired: list[int] = []
    handles = [timers.call_later(1000 - number, partial(fired.append, number)) for number in range(500)]
    for number, handle in enumerate(handles):
        if number % 100:
            handle.cancel()
    clock.advance_timeouts(1000)
    assert fired == [400, 300, 200, 100, 0]


def test_moving_the_wall_clock_fires_no_timer(clock: ManualClock, timers: Timers) -> None:
    fired: list[str] = []
    timers.call_later(10, lambda: fired.append("fired"))
    clock.advance_wall(1_000_000)
    assert fired == []


def test_timers_cancelled_by_a_timer_do_not_delay_a_new_one(clock: ManualClock) -> None:
    asked: list[float] = []

    class Remembering(Loop):
        def call_later(self, delay: float, callback: Callable[[], object]) -> Loop:
            asked.append(delay)
            return self

    timers = Timers(clock, Remembering())
    doomed = [timers.call_later(1000, lambda: None) for _ in range(200)]
    timers.call_later(60_000, lambda: None)

    def cancel_them_and_wait_a_little() -> None:
        for handle in doomed:
            handle.cancel()
        timers.call_later(20, lambda: None)

    timers.call_later(10, cancel_them_and_wait_a_little)
    clock.advance_timeouts(10)
    assert asked[-1] == 0.021


def test_closed_timers_leave_their_clock(clock: ManualClock, timers: Timers) -> None:
    fired: list[str] = []
    timers.close()
    timers.call_later(1, lambda: fired.append("after the end"))
    clock.advance_timeouts(10)
    assert fired == []
