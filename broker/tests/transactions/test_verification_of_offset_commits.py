"""Verification of TxnOffsetCommit by the transaction coordinator, and the errors that clients get."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.conftest import Connect
from broker.tests.groups.transactional_commits import EPOCH, PRODUCER, commit, end, fetch, request, started
from broker.tests.transactions.scripted_coordinator import ScriptedCoordinator

from odradek_broker.metadata.view import TRANSACTION_STATE
from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest

OFFSETS = ("__consumer_offsets", 0)
VERIFIES, ADDS = 4, 5


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = await started(tmp_path, transaction_partition_verification_enable="true")
    yield node
    await node.stop()


@pytest.fixture
async def client(node: Node, connect: Connect) -> Any:
    client = await connect(node)
    await client.create_topic("t", 2)
    await client.ask(FindCoordinatorRequest("g", 0), 3)
    return client


@pytest.fixture
async def coordinator(node: Node, client: Any) -> ScriptedCoordinator:
    found = ScriptedCoordinator()
    await client.create_topic(TRANSACTION_STATE)
    node.broker.add_partitions_to_txn_manager.local_coordinator = lambda: found
    return found


@pytest.mark.parametrize(("version", "word"), [(0, "verify"), (3, "verify"), (VERIFIES, "verify"), (ADDS, "add")])
async def test_only_the_first_offset_commit_is_verified(
    client: Any, coordinator: ScriptedCoordinator, version: int, word: str
) -> None:
    question = (word, "x", Producer(PRODUCER, EPOCH), (OFFSETS,))
    for offset in (5, 6):
        assert await commit(client, request(("t", 0, offset)), version) == {("t", 0): 0}
    assert coordinator.requests == [question]
    assert await end(client, commit=True) == 0
    assert await fetch(client, stable=True) == [(6, 0), (-1, 0)]
    assert await commit(client, request(("t", 0, 7)), version) == {("t", 0): 0}
    assert coordinator.requests == [question] * 2


@pytest.mark.parametrize(
    ("coordinator_error", "version", "client_error"),
    [
        (ErrorCode.INVALID_TXN_STATE, VERIFIES, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.TRANSACTION_ABORTABLE, VERIFIES, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.TRANSACTION_ABORTABLE, 3, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, VERIFIES, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, VERIFIES, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, VERIFIES, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ADDS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.NOT_COORDINATOR, ADDS, ErrorCode.NOT_COORDINATOR),
        # The client needs no other group coordinator; clients before v2 do not know COORDINATOR_LOAD_IN_PROGRESS.
        (ErrorCode.NETWORK_EXCEPTION, 2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.NETWORK_EXCEPTION, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
async def test_unverified_offsets_are_not_committed(
    client: Any, coordinator: ScriptedCoordinator, coordinator_error: ErrorCode, version: int, client_error: ErrorCode
) -> None:
    coordinator.errors[OFFSETS] = coordinator.error = coordinator_error
    assert await commit(client, request(("t", 0, 5), ("t", 1, 5)), version) == {
        ("t", 0): client_error,
        ("t", 1): client_error,
    }
    assert await fetch(client, stable=True) == [(-1, 0), (-1, 0)]


async def test_without_a_coordinator_clients_get_a_retriable_error(client: Any, node: Node) -> None:
    assert await commit(client, request(("t", 0, 5))) == {("t", 0): ErrorCode.COORDINATOR_NOT_AVAILABLE}


async def test_a_commit_waits_until_its_partition_is_added(
    client: Any, coordinator: ScriptedCoordinator, node: Node
) -> None:
    coordinator.held = []
    waiting = asyncio.ensure_future(commit(client, request(("t", 0, 5)), ADDS))
    while not coordinator.held:
        await asyncio.sleep(0)
    coordinator.held[0].complete(ErrorCode.NONE)
    assert await waiting == {("t", 0): 0}


async def test_a_late_verification_commits_no_offsets(
    client: Any, coordinator: ScriptedCoordinator, node: Node, connect: Connect
) -> None:
    coordinator.held = []
    waiting = asyncio.ensure_future(commit(client, request(("t", 0, 5)), ADDS))
    while not coordinator.held:
        await asyncio.sleep(0)
    assert await end(await connect(node), commit=True, epoch=EPOCH + 1) == 0
    coordinator.held[0].complete(ErrorCode.NONE)
    assert await waiting == {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert await fetch(client, stable=True) == [(-1, 0), (-1, 0)]


async def test_a_former_group_coordinator_commits_no_offsets(
    client: Any, coordinator: ScriptedCoordinator, node: Node
) -> None:
    coordinator.held = []
    waiting = asyncio.ensure_future(commit(client, request(("t", 0, 5)), ADDS))
    while not coordinator.held:
        await asyncio.sleep(0)
    node.broker.group_coordinator.resigned(0)
    coordinator.held[0].complete(ErrorCode.NONE)
    assert await waiting == {("t", 0): ErrorCode.NOT_COORDINATOR}
