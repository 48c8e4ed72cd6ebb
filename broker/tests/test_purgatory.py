"""Delayed operations: tried after a change, expired at their deadline, removed when cancelled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from broker.tests.manual_clock import ManualClock

from odradek_broker.deferred import Deferred
from odradek_broker.purgatory import Purgatory, Watchers
from odradek_broker.timers import Timers


class Loop:
    """Runs the callbacks of `call_soon` only on demand."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_later(self, delay: float, callback: Callable[[], object]) -> Loop:
        return self

    def cancel(self) -> None:
        pass

    def run(self) -> None:
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def purgatory(loop: Loop, clock: ManualClock) -> Purgatory:
    return Purgatory(Timers(clock, loop))


def test_an_operation_is_tried_once_for_many_changes(loop: Loop, purgatory: Purgatory) -> None:
    tried: list[str] = []
    one, other = Watchers(), Watchers()
    deferred = purgatory.watch([one, other], lambda: tried.append("tried"), lambda: None, 100)
    purgatory.check_and_complete(one)
    purgatory.check_and_complete(other)
    purgatory.check_and_complete(one)
    assert tried == []
    loop.run()
    assert (tried, deferred.done) == (["tried"], False)


def test_a_completed_operation_watches_no_partition(loop: Loop, purgatory: Purgatory) -> None:
    one, other = Watchers(), Watchers()
    deferred = purgatory.watch([one, other], lambda: "enough", lambda: "late", 100)
    purgatory.check_and_complete(other)
    loop.run()
    assert (deferred.value, bool(one), bool(other), len(purgatory)) == ("enough", False, False, 0)


def test_at_the_deadline_the_operation_expires(clock: ManualClock, purgatory: Purgatory) -> None:
    watchers = Watchers()
    deferred: Deferred[str] = purgatory.watch([watchers], lambda: None, lambda: "late", 100)
    clock.advance_timeouts(99)
    assert not deferred.done
    clock.advance_timeouts(1)
    assert (deferred.value, bool(watchers)) == ("late", False)


def test_a_cancelled_operation_is_neither_tried_nor_expired(
    loop: Loop, clock: ManualClock, purgatory: Purgatory
) -> None:
    tried: list[str] = []
    watchers = Watchers()
    deferred = purgatory.watch([watchers], lambda: tried.append("tried"), lambda: tried.append("expired"), 100)
    purgatory.check_and_complete(watchers)
    deferred.cancel()
    loop.run()
    clock.advance_timeouts(100)
    assert (tried, bool(watchers), len(purgatory)) == ([], False, 0)


def test_an_exception_of_an_attempt_fails_the_operation(loop: Loop, purgatory: Purgatory) -> None:
    watchers = Watchers()

    def attempt() -> str:
        raise RuntimeError("broken")

    deferred = purgatory.watch([watchers], attempt, lambda: "late", 100)
    purgatory.check_and_complete(watchers)
    loop.run()
    with pytest.raises(RuntimeError, match="broken"):
        deferred.result()


def test_a_listener_that_fails_does_not_delay_other_operations(loop: Loop, purgatory: Purgatory) -> None:
    watchers = Watchers()
    first, second = (purgatory.watch([watchers], lambda: "done", lambda: "late", 100) for _ in range(2))

    def overtaxed(deferred: Deferred[str]) -> None:
        raise RuntimeError("overtaxed")

    first.when_done(overtaxed)
    purgatory.check_and_complete(watchers)
    with pytest.raises(RuntimeError, match="overtaxed"):
        loop.run()
    assert not second.done
    loop.run()
    assert second.value == "done"
    third = purgatory.watch([watchers], lambda: "done", lambda: "late", 100)
    purgatory.check_and_complete(watchers)
    loop.run()
    assert third.value == "done"


def test_expire_all_completes_every_operation(purgatory: Purgatory) -> None:
    waits = [purgatory.watch([Watchers()], lambda: None, partial(int, number), 100) for number in range(3)]
    purgatory.expire_all()
    assert [deferred.value for deferred in waits] == [0, 1, 2]


async def test_a_deferred_can_be_awaited() -> None:
    deferred: Deferred[int] = Deferred()
    deferred.complete(7)
    assert await deferred == 7


async def test_the_first_completion_counts() -> None:
    deferred: Deferred[int] = Deferred()
    deferred.complete(1)
    deferred.complete(2)
    deferred.fail(RuntimeError())
    assert deferred.result() == 1
