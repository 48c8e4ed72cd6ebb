"""Entries that are sent together, one request at a time, and again after a failure."""

from __future__ import annotations

import asyncio

import pytest
import structlog
from structlog.testing import capture_logs

from odradek_broker.inter_broker.coalescing_queue import CoalescingQueue


class Receiver:
    """Keeps every request until it is answered with the entries to send again, or with an error."""

    def __init__(self) -> None:
        self.requests: list[dict[str, int]] = []
        self.delays_ms: list[int] = []
        self._answer: asyncio.Future[dict[str, int]] | None = None
        self.retry = CoalescingQueue(
            self._receive,
            sleep=self._sleep,
            retry_ms=50,
            failure_event="sending failed",
            log=structlog.get_logger("test"),
        )

    async def _receive(self, entries: dict[str, int]) -> dict[str, int]:
        self.requests.append(entries)
        self._answer = asyncio.get_running_loop().create_future()
        return await self._answer

    async def _sleep(self, delay_ms: int) -> None:
        self.delays_ms.append(delay_ms)
        await asyncio.sleep(0)

    async def answer(self, again: dict[str, int] | Exception | None = None) -> None:
        assert self._answer is not None
        if isinstance(again, Exception):
            self._answer.set_exception(again)
        else:
            self._answer.set_result(again or {})
        await turns()

    def take(self) -> list[dict[str, int]]:
        requests, self.requests = self.requests, []
        return requests


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.fixture
async def receiver() -> Receiver:
    return Receiver()


async def test_entries_gather_while_a_request_is_in_flight(receiver: Receiver) -> None:
    receiver.retry.add("a", 1)
    await turns()
    receiver.retry.add("b", 1)
    receiver.retry.add("c", 1)
    receiver.retry.add("b", 2)
    assert (receiver.take(), receiver.retry.get("b"), len(receiver.retry)) == ([{"a": 1}], 2, 2)
    await receiver.answer()
    assert receiver.take() == [{"b": 2, "c": 1}]
    await receiver.answer()
    assert (receiver.take(), len(receiver.retry), receiver.delays_ms) == ([], 0, [])


async def test_failed_entries_are_sent_again_after_a_delay(receiver: Receiver) -> None:
    receiver.retry.add("a", 1)
    receiver.retry.add("b", 1)
    await turns()
    await receiver.answer({"b": 1})
    assert (receiver.take(), receiver.delays_ms) == ([{"a": 1, "b": 1}, {"b": 1}], [50])
    await receiver.answer()
    assert receiver.take() == []


async def test_a_later_entry_replaces_one_that_failed(receiver: Receiver) -> None:
    receiver.retry.add("a", 1)
    await turns()
    receiver.retry.add("a", 2)
    await receiver.answer({"a": 1})
    assert receiver.take() == [{"a": 1}, {"a": 2}]


async def test_an_exception_is_logged_and_all_entries_are_sent_again(receiver: Receiver) -> None:
    receiver.retry.add("a", 1)
    await turns()
    with capture_logs() as lines:
        await receiver.answer(RuntimeError("planned"))
    assert [line["event"] for line in lines] == ["sending failed"]
    assert receiver.take() == [{"a": 1}, {"a": 1}]


async def test_close_cancels_the_request_and_returns_the_entries_that_wait(receiver: Receiver) -> None:
    receiver.retry.add("a", 1)
    await turns()
    receiver.retry.add("b", 1)
    assert await receiver.retry.close() == {"b": 1}
    receiver.retry.add("c", 1)
    await turns()
    assert (receiver.take(), len(receiver.retry)) == ([{"a": 1}], 0)
