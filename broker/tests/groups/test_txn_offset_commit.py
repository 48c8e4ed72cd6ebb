"""TxnOffsetCommit as clients see it. Verification by the transaction coordinator is off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.conftest import Connect
from broker.tests.groups.transactional_commits import EPOCH, commit, end, fetch, request, started
from broker.tests.transactions.markers import Only

from odradek_broker.security.authorizer import AllowAll, Operation
from odradek_controller.principal import Principal
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest
from odradek_wire.messages.offset_commit import OffsetCommitRequest

VERSIONS = range(6)
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    node = await started(tmp_path)
    yield node
    await node.stop()


@pytest.fixture
async def client(node: Node, connect: Connect) -> Any:
    client = await connect(node)
    await client.create_topic("t", 2)
    await client.ask(FindCoordinatorRequest("g", 0), 3)
    return client


# Version 5 asks the transaction's coordinator in any case.
@pytest.mark.parametrize("version", range(5))
async def test_an_offset_is_visible_once_its_transaction_is_committed(client: Any, version: int) -> None:
    assert await commit(client, request(("t", 0, 5)), version) == {("t", 0): 0}
    assert await fetch(client, stable=False) == [(-1, 0), (-1, 0)]
    assert await fetch(client, stable=True) == [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT), (-1, 0)]
    assert await end(client, commit=True) == 0
    assert await fetch(client, stable=True) == [(5, 0), (-1, 0)]


async def test_an_offset_of_an_aborted_transaction_is_never_visible(client: Any) -> None:
    before = OffsetCommitRequest.OffsetCommitRequestTopic("t")
    before.partitions.append(OffsetCommitRequest.OffsetCommitRequestPartition(0, 3))
    await client.ask(OffsetCommitRequest("g", topics=[before]), 8)
    await commit(client, request(("t", 0, 5)))
    assert await end(client, commit=False) == 0
    assert await fetch(client, stable=True) == [(3, 0), (-1, 0)]


async def test_deleting_a_topic_deletes_pending_offsets(client: Any) -> None:
    await commit(client, request(("t", 0, 5)))
    deleted = await client.ask(DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("t")], timeout_ms=1000), 6)
    assert deleted.responses[0].error_code == 0
    assert await fetch(client, stable=True) == [(-1, 0), (-1, 0)]
    assert await end(client, commit=True) == 0
    assert await fetch(client, stable=True) == [(-1, 0), (-1, 0)]


async def test_a_restart_keeps_pending_offsets(client: Any, node: Node, tmp_path: Path, connect: Connect) -> None:
    await commit(client, request(("t", 0, 5)))
    await node.stop()
    again = await started(tmp_path)
    client = await connect(again)
    assert await fetch(client, stable=True) == [(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT), (-1, 0)]
    assert await commit(client, request(("t", 1, 6), epoch=EPOCH - 1)) == {("t", 1): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert await end(client, commit=True) == 0
    assert await fetch(client, stable=True) == [(5, 0), (-1, 0)]
    await again.stop()


@pytest.mark.parametrize("version", VERSIONS)
async def test_unknown_partitions_come_first_in_the_response(client: Any, version: int) -> None:
    answered = await commit(client, request(("none", 0, 1), ("t", 2, 1), ("t", 0, 1)), min(version, 4))
    assert list(answered.items()) == [(("none", 0), UNKNOWN), (("t", 2), UNKNOWN), (("t", 0), 0)]
    assert await commit(client, request(("none", 0, 1)), version) == {("none", 0): UNKNOWN}


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_empty_group_id_is_invalid(client: Any, version: int) -> None:
    refused = {("t", 0): ErrorCode.INVALID_GROUP_ID}
    assert await commit(client, request(("t", 0, 1), group=""), version) == refused


class Names(AllowAll):
    """An authorizer that forbids one operation."""

    allows_everything = False

    def __init__(self, forbidden: Operation, name: str) -> None:
        self._forbidden = (forbidden, name)

    def allows(self, principal: Principal, address: str, operation: Operation, resource: int, name: str) -> bool:
        return (operation, name) != self._forbidden


async def test_transactional_id_group_and_topics_are_authorized_in_this_order(client: Any, node: Node) -> None:
    wanted = request(("t", 0, 1), ("none", 0, 1))

    async def errors() -> list[int]:
        return list((await commit(client, wanted)).values())

    node.broker.authorizer = Only(Operation.DESCRIBE)
    assert await errors() == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    node.broker.authorizer = Names(Operation.WRITE, "x")
    assert await errors() == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    node.broker.authorizer = Names(Operation.READ, "g")
    assert await errors() == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2
    node.broker.authorizer = Names(Operation.READ, "none")
    assert await commit(client, wanted) == {("none", 0): ErrorCode.TOPIC_AUTHORIZATION_FAILED, ("t", 0): 0}


async def test_a_broker_that_is_not_the_coordinator_refuses_the_commit(client: Any, node: Node) -> None:
    node.broker.group_coordinator.resigned(0)
    assert await commit(client, request(("t", 0, 1))) == {("t", 0): ErrorCode.NOT_COORDINATOR}
