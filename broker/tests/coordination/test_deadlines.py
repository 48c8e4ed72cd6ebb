"""The queue of deadlines, and its size after many changes."""

from __future__ import annotations

import heapq
from typing import Any

import pytest

from odradek_broker.coordination.core.deadlines import DeadlineQueue

OPEN = 1000


def test_setting_and_cancelling_many_keys_rarely_rebuilds_the_heap(monkeypatch: pytest.MonkeyPatch) -> None:
    queue: DeadlineQueue[int] = DeadlineQueue()
    for key in range(OPEN):
        queue.set(key, key)
    sizes: list[int] = []
    heapify = heapq.heapify

    def counted(heap: list[Any]) -> None:
        sizes.append(len(heap))
        heapify(heap)

    monkeypatch.setattr(heapq, "heapify", counted)
    rounds = 10 * OPEN
    for number in range(rounds):
        key = number % OPEN
        queue.cancel(key)
        queue.set(key, OPEN + number)
    assert 1 < len(sizes) <= rounds // OPEN
    assert max(sizes) <= OPEN
    assert list(queue.take_due(2 * rounds)) == list(range(OPEN))


def test_moved_deadlines_stay_valid_when_others_are_cancelled() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    names = [f"k{number}" for number in range(200)]
    for name in names:
        queue.set(name, 10)
    queue.set("k198", 5)
    queue.set("k199", 30)
    for name in names[:197]:
        queue.cancel(name)
    assert queue.next_ms() == 5
    assert list(queue.take_due(20)) == ["k198", "k197"]
    assert list(queue.take_due(30)) == ["k199"]
    assert queue.next_ms() is None


def test_deadlines_are_ordered_and_can_be_moved_and_cancelled() -> None:
    deadlines = DeadlineQueue[str]()
    keys = list("abcd")
    for key, at_ms in zip(keys, (30, 10, 20, 20), strict=True):
        deadlines.set(key, at_ms)
    deadlines.set(keys[1], 25)
    deadlines.cancel(keys[3])
    deadlines.set(keys[0], 5)
    assert deadlines.next_ms() == 5
    assert list(deadlines.take_due(24)) == [keys[0], keys[2]]
    assert list(deadlines.take_due(25)) == [keys[1]]
    assert deadlines.next_ms() is None
