"""Deferred responses derived from others: values, errors and cancellations are passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.conftest import Connect

from odradek_broker.deferred import Deferred
from odradek_wire.apis import APIS
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from odradek_wire.messages.join_group import JoinGroupRequest
from odradek_wire.messages.offset_commit import OffsetCommitRequest
from odradek_wire.messages.offset_delete import OffsetDeleteRequest
from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest

Chain = Callable[[Deferred[int], Callable[[int], int]], Deferred[int]]


def mapped(source: Deferred[int], function: Callable[[int], int]) -> Deferred[int]:
    return source.map(function)


def followed(source: Deferred[int], function: Callable[[int], int]) -> Deferred[int]:
    return source.then(function)


def divided(value: int) -> int:
    return 12 // value


both = pytest.mark.parametrize("chain", [mapped, followed])


@both
def test_map_completes_with_the_result_of_the_function(chain: Chain) -> None:
    source: Deferred[int] = Deferred()
    result = chain(source, divided)
    assert not result.done
    source.complete(4)
    assert result.result() == 3


@both
def test_a_value_that_is_there_already_is_mapped_immediately(chain: Chain) -> None:
    source: Deferred[int] = Deferred()
    source.complete(4)
    assert chain(source, divided).result() == 3


@both
def test_the_error_of_the_source_is_the_error_of_the_result(chain: Chain) -> None:
    source: Deferred[int] = Deferred()
    result = chain(source, divided)
    source.fail(OSError("broken"))
    with pytest.raises(OSError, match="broken"):
        result.result()


@both
def test_an_exception_of_the_function_is_the_error_of_the_result(chain: Chain) -> None:
    source: Deferred[int] = Deferred()
    result = chain(source, divided)
    source.complete(0)
    with pytest.raises(ZeroDivisionError):
        result.result()


def test_cancelling_a_mapped_response_cancels_its_sources() -> None:
    cancelled: list[str] = []
    source: Deferred[int] = Deferred(lambda: cancelled.append("source"))
    source.map(divided).map(str).cancel()
    assert (cancelled, source.done) == (["source"], True)


def test_the_step_runs_after_the_client_disconnects() -> None:
    steps: list[int] = []
    source: Deferred[int] = Deferred()
    result = source.then(steps.append)
    result.cancel()
    assert not source.done
    source.complete(1)
    assert steps == [1]


@pytest.mark.parametrize("before", [True, False], ids=["before the step", "after the step"])
def test_a_cancellation_reaches_the_deferred_of_the_step(before: bool) -> None:
    source: Deferred[int] = Deferred()
    waited_for: Deferred[int] = Deferred()
    result: Deferred[int] = source.then(lambda _: waited_for)
    if before:
        result.cancel()
        source.complete(1)
    else:
        source.complete(1)
        result.cancel()
    assert waited_for.done


@pytest.mark.parametrize("fails", [True, False])
def test_the_outcome_of_the_steps_deferred_is_the_result(fails: bool) -> None:
    source: Deferred[int] = Deferred()
    waited_for: Deferred[int] = Deferred()
    result: Deferred[int] = source.then(lambda _: waited_for)
    source.complete(1)
    assert not result.done
    if fails:
        waited_for.fail(OSError("broken"))
    else:
        waited_for.complete(2)
    assert (str(result.error), result.value) == (("broken", None) if fails else ("None", 2))


async def test_a_cancelled_task_cancels_the_deferred_that_it_awaits() -> None:
    source: Deferred[int] = Deferred()

    async def wait() -> int:
        return await source

    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), source.done) == (True, True)


COMMITTED = OffsetCommitRequest.OffsetCommitRequestTopic(
    "t", partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(0, 1)]
)
COMMITTED_IN_TRANSACTION = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
    "t", [TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, 1)]
)
DELETED = OffsetDeleteRequest.OffsetDeleteRequestTopic("t", [OffsetDeleteRequest.OffsetDeleteRequestPartition(0)])
ADDED = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic("t", [0])


@pytest.mark.parametrize(
    ("request_", "version", "coordinator", "method", "error_of"),
    [
        (
            JoinGroupRequest("g", 10_000, protocol_type="consumer"),
            2,
            "group_coordinator",
            "handle",
            lambda r: r.error_code,
        ),
        (
            OffsetCommitRequest("g", topics=[COMMITTED]),
            8,
            "group_coordinator",
            "commit_offsets",
            lambda r: r.topics[0].partitions[0].error_code,
        ),
        (
            TxnOffsetCommitRequest("tx", "g", 1, 0, topics=[COMMITTED_IN_TRANSACTION]),
            3,
            "group_coordinator",
            "commit_transactional_offsets",
            lambda r: r.topics[0].partitions[0].error_code,
        ),
        (OffsetDeleteRequest("g", [DELETED]), 0, "group_coordinator", "delete_offsets", lambda r: r.error_code),
        (AddOffsetsToTxnRequest("tx", 1, 0, "g"), 3, "transaction_coordinator", "add_offsets", lambda r: r.error_code),
        (
            AddPartitionsToTxnRequest(v3_and_below_transactional_id="tx", v3_and_below_topics=[ADDED]),
            3,
            "transaction_coordinator",
            "add_partitions",
            lambda r: r.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code,
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
async def test_a_client_gets_an_error_when_a_coordinator_fails_later(
    node: Node,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
    request_: Message,
    version: int,
    coordinator: str,
    method: str,
    error_of: Callable[[Any], int],
) -> None:
    client = await connect(node)
    await client.create_topic("t")
    answer: Deferred[Any] = Deferred()
    asked = asyncio.Event()

    def ask(*_: object, **__: object) -> Deferred[Any]:
        asked.set()
        return response

    monkeypatch.setattr(getattr(node.broker, coordinator), method, ask)
    client.send(request_, version)
    async with asyncio.timeout(10):
        await asked.wait()
    answer.fail(RuntimeError("broken"))
    _, response = await client.receive(APIS[request_.API_KEY].response_class(), version)
    assert error_of(response) == ErrorCode.UNKNOWN_SERVER_ERROR
