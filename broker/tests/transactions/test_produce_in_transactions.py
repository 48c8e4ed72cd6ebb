"""Produce with transactional batches: verification by the coordinator, and the errors that clients get."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.conftest import batch, produce_request
from broker.tests.manual_clock import ManualClock
from broker.tests.transactions.scripted_coordinator import ScriptedCoordinator

from odradek_broker.metadata.view import TRANSACTION_STATE
from odradek_broker.security.authorizer import AllowAll, Operation, ResourceType
from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_controller.principal import Principal
from odradek_log.producer_state_manager import TransactionMarker
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.uuid import ZERO_UUID, Uuid

PRODUCER = 7
ADDS, VERIFIES, OLD = 12, 11, 9
"""Versions of Produce. With the first one the broker adds the partition. With the others it verifies it: the clients of
the second one know TRANSACTION_ABORTABLE, those of the third one do not."""
RETRIED = "Unable to verify the partition has been added to the transaction. Underlying error: "


@pytest.fixture
async def coordinator(node: Node, client: Any) -> ScriptedCoordinator:
    """A scripted coordinator in the default node, which has a topic `t` of three partitions."""
    return await coordinated(node, client)


async def coordinated(node: Node, client: Any) -> ScriptedCoordinator:
    found = ScriptedCoordinator()
    await client.create_topic("t", 3)
    await client.create_topic(TRANSACTION_STATE, 3)
    node.broker.add_partitions_to_txn_manager.local_coordinator = lambda: found
    return found


def transactional(sequence: int = 0, epoch: int = 0, producer: int = PRODUCER) -> bytes:
    builder = BatchBuilder(producer_id=producer, producer_epoch=epoch, base_sequence=sequence, is_transactional=True)
    builder.append(int(time.time() * 1000), None, b"v")
    return bytes(builder.build())


def idempotent(sequence: int) -> bytes:
    builder = BatchBuilder(producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence)
    builder.append(int(time.time() * 1000), None, b"v")
    return bytes(builder.build())


def request(
    *records: tuple[int, bytes], name: str | None = "tx", acks: int = -1, topic_id: Uuid = ZERO_UUID
) -> ProduceRequest:
    data = [ProduceRequest.PartitionProduceData(index, each) for index, each in records]
    return ProduceRequest(name, acks, 5000, [ProduceRequest.TopicProduceData("t", topic_id, data)])


async def errors(client: Any, sent: ProduceRequest, version: int) -> dict[int, int]:
    response = await client.ask(sent, version)
    return {answer.index: answer.error_code for answer in response.responses[0].partition_responses}


def end_offset(node: Node, index: int = 0) -> int:
    return node.broker.partitions.get("t", index).log_end_offset  # type: ignore[union-attr]


def end_transaction(node: Node, epoch: int = 0, version: int = 0) -> None:
    partition = node.broker.partitions.get("t", 0)
    assert partition is not None
    partition.end_transaction(TransactionMarker(PRODUCER, epoch, 0, True, version))


@pytest.mark.parametrize(("version", "word"), [(OLD, "verify"), (VERIFIES, "verify"), (ADDS, "add")])
async def test_only_the_first_batch_of_a_transaction_is_verified(
    node: Node, client: Any, coordinator: ScriptedCoordinator, version: int, word: str
) -> None:
    first = request((0, transactional()), (2, transactional()))
    assert await errors(client, first, version) == {0: 0, 2: 0}
    assert await errors(client, request((0, transactional(1))), version) == {0: 0}
    assert coordinator.requests == [(word, "tx", Producer(PRODUCER, 0), (("t", 0), ("t", 2)))]
    end_transaction(node)
    assert await errors(client, request((0, transactional(2))), version) == {0: 0}
    assert coordinator.requests[1:] == [(word, "tx", Producer(PRODUCER, 0), (("t", 0),))]


async def test_partitions_of_topic_ids_are_verified_by_topic_name(
    node: Node, client: Any, coordinator: ScriptedCoordinator
) -> None:
    topic_id = node.broker.image.topics["t"].id
    assert await errors(client, request((1, transactional()), topic_id=topic_id), 13) == {1: 0}
    assert coordinator.requests == [("add", "tx", Producer(PRODUCER, 0), (("t", 1),))]


@pytest.mark.parametrize(
    ("coordinator_error", "version", "client_error", "message"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, VERIFIES, ErrorCode.TRANSACTION_ABORTABLE, None),
        (
            ErrorCode.TRANSACTION_ABORTABLE,
            OLD,
            ErrorCode.INVALID_TXN_STATE,
            "Partition was not added to the transaction",
        ),
        (ErrorCode.PRODUCER_FENCED, VERIFIES, ErrorCode.INVALID_PRODUCER_EPOCH, None),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, OLD, ErrorCode.INVALID_PRODUCER_ID_MAPPING, None),
        *(
            (error, version, ErrorCode.NOT_ENOUGH_REPLICAS, RETRIED + error.name)
            for error in (
                ErrorCode.CONCURRENT_TRANSACTIONS,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            )
            for version in (OLD, VERIFIES)
        ),
    ],
)
async def test_an_unverified_batch_gets_an_error_that_its_client_knows(
    node: Node,
    client: Any,
    coordinator: ScriptedCoordinator,
    coordinator_error: ErrorCode,
    version: int,
    client_error: ErrorCode,
    message: str | None,
) -> None:
    coordinator.errors["t", 0] = coordinator_error
    response = await client.ask(request((0, transactional()), (1, transactional())), version)
    refused, appended = response.responses[0].partition_responses
    assert (refused.error_code, refused.base_offset, refused.error_message) == (client_error, -1, message)
    assert (refused.log_start_offset, refused.log_append_time_ms) == (-1, -1)
    assert (appended.error_code, appended.base_offset) == (0, 0)
    assert (end_offset(node, 0), end_offset(node, 1)) == (0, 1)


async def test_without_a_coordinator_the_producer_gets_a_retriable_error(client: Any) -> None:
    await client.create_topic("t")
    response = await client.ask(request((0, transactional())), VERIFIES)
    (answer,) = response.responses[0].partition_responses
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert answer.error_message == RETRIED + "COORDINATOR_NOT_AVAILABLE"


async def test_without_verification_partitions_are_still_added(start_node: Any, connect: Any) -> None:
    node = await start_node(transaction_partition_verification_enable="false")
    client = await connect(node)
    coordinator = await coordinated(node, client)
    assert await errors(client, request((0, transactional())), VERIFIES) == {0: 0}
    assert coordinator.requests == []
    assert await errors(client, request((1, transactional())), ADDS) == {1: 0}
    assert [word for word, *_ in coordinator.requests] == ["add"]


async def test_a_connection_is_not_read_while_a_partition_is_added(
    node: Node, client: Any, coordinator: ScriptedCoordinator
) -> None:
    coordinator.held = []
    later = [request((0, transactional(sequence))) for sequence in (0, 1)] + [produce_request("t", batch(b"plain"))]
    for each in later:
        client.send(each, ADDS)
    while not coordinator.held:
        await asyncio.sleep(0)
    assert end_offset(node) == 0
    # Another request overwrites the connection's buffer, but not the records.
    coordinator.held[0].complete(ErrorCode.NONE)
    offsets = []
    for _ in later:
        _, response = await client.receive(ProduceResponse, ADDS)
        offsets.append(response.responses[0].partition_responses[0].base_offset)
    assert offsets == [0, 1, 2]
    assert len(coordinator.held) == 1


async def test_records_that_wait_are_not_overwritten_by_other_connections(
    node: Node, client: Any, connect: Any, coordinator: ScriptedCoordinator
) -> None:
    coordinator.held = []
    records = transactional()
    client.send(request((0, records)), ADDS)
    while not coordinator.held:
        await asyncio.sleep(0)
    other = await connect(node)
    used = node.server.buffers.budget.used
    assert used >= len(records)
    await other.produce("t", batch(b"x" * 2000), partition=1)
    coordinator.held[0].complete(ErrorCode.NONE)
    await client.receive(ProduceResponse, ADDS)
    log = node.broker.partitions.get("t", 0).log  # type: ignore[union-attr]
    found = log.read(0, 10_000)
    assert found is not None
    assert found.tobytes()[61:] == records[61:]
    assert node.server.buffers.budget.used == used - len(records)


async def test_records_of_a_client_that_disconnects_are_appended(
    node: Node, client: Any, coordinator: ScriptedCoordinator, connect: Any
) -> None:
    coordinator.held = []
    client.send(request((0, transactional())), ADDS)
    while not coordinator.held:
        await asyncio.sleep(0)
    client.close()
    while len(node.server.connections):
        await asyncio.sleep(0)
    coordinator.held[0].complete(ErrorCode.NONE)
    assert end_offset(node) == 1
    assert node.server.buffers.budget.used == 0


async def test_a_late_verification_does_not_begin_an_ended_transaction(
    node: Node, client: Any, coordinator: ScriptedCoordinator
) -> None:
    coordinator.held = []
    client.send(request((0, transactional())), ADDS)
    while not coordinator.held:
        await asyncio.sleep(0)
    end_transaction(node, epoch=1)
    coordinator.held[0].complete(ErrorCode.NONE)
    _, response = await client.receive(ProduceResponse, ADDS)
    (answer,) = response.responses[0].partition_responses
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_PRODUCER_EPOCH, None)
    assert end_offset(node) == 1


async def test_adding_retries_while_the_previous_transaction_completes(start_node: Any, connect: Any) -> None:
    clock = ManualClock(int(time.time() * 1000))
    node = await start_node(clock=clock)
    client = await connect(node)
    coordinator = await coordinated(node, client)

    async def until_requested(count: int) -> None:
        while len(coordinator.requests) < count:
            await asyncio.sleep(0)

    coordinator.error = ErrorCode.CONCURRENT_TRANSACTIONS
    client.send(request((0, transactional())), ADDS)
    await until_requested(1)
    clock.advance_timeouts(20)
    await until_requested(2)
    coordinator.error = ErrorCode.NONE
    clock.advance_timeouts(20)
    _, response = await client.receive(ProduceResponse, ADDS)
    assert response.responses[0].partition_responses[0].error_code == 0

    coordinator.error = ErrorCode.CONCURRENT_TRANSACTIONS
    client.send(request((1, transactional())), ADDS)
    for count in range(4, 10):
        await until_requested(count)
        clock.advance_timeouts(20)
    _, response = await client.receive(ProduceResponse, ADDS)
    (answer,) = response.responses[0].partition_responses
    assert (answer.error_code, answer.error_message) == (ErrorCode.CONCURRENT_TRANSACTIONS, None)
    assert len(coordinator.requests) == 9


class Allows(AllowAll):
    """An authorizer that allows everything but writing under some transactional ids."""

    allows_everything = False

    def __init__(self, *forbidden: str) -> None:
        self._forbidden = forbidden

    def allows(self, principal: Principal, address: str, operation: int, resource: int, name: str) -> bool:
        forbidden = name in self._forbidden and operation == Operation.WRITE
        return not (resource == ResourceType.TRANSACTIONAL_ID and forbidden)


@pytest.mark.parametrize("version", [3, 7, OLD, VERIFIES, ADDS])
async def test_a_producer_without_permission_for_its_id_is_refused(
    node: Node, client: Any, coordinator: ScriptedCoordinator, version: int
) -> None:
    node.broker.authorizer = Allows("tx")
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for name in ("tx", None):
        mixed = request((0, batch(b"plain")), (1, transactional()), name=name)
        assert await errors(client, mixed, version) == {0: refused, 1: refused}
        assert await errors(client, request((1, transactional()), name=name), version) == {1: refused}
    assert await errors(client, request((0, batch(b"plain"))), version) == {0: 0}
    assert (coordinator.requests, end_offset(node), end_offset(node, 1)) == ([], 1, 0)


async def test_the_fast_path_appends_no_batch_of_a_transaction(
    node: Node, client: Any, coordinator: ScriptedCoordinator
) -> None:
    assert await errors(client, request((0, transactional())), VERIFIES) == {0: 0}
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await errors(client, request((0, transactional(1)), name=None), VERIFIES) == {0: refused}
    assert end_offset(node) == 1


async def test_an_error_with_acks_0_closes_the_connection(client: Any, coordinator: ScriptedCoordinator) -> None:
    client.send(request((0, transactional()), name=None, acks=0), VERIFIES)
    assert await client.is_closed_by_broker()


async def test_batches_of_two_producers_in_one_request_are_refused(
    node: Node, client: Any, coordinator: ScriptedCoordinator
) -> None:
    both = request((0, transactional()), (1, transactional(producer=8)))
    response = await client.ask(both, VERIFIES)
    for answer in response.responses[0].partition_responses:
        assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert answer.error_message == "Transactional records contained more than one producer ID"
    assert coordinator.requests == []


async def test_an_old_epoch_is_refused_without_a_verification(
    node: Node, client: Any, coordinator: ScriptedCoordinator
) -> None:
    assert await errors(client, request((0, transactional(epoch=1))), ADDS) == {0: 0}
    assert await errors(client, request((0, transactional())), ADDS) == {0: ErrorCode.INVALID_PRODUCER_EPOCH}
    assert len(coordinator.requests) == 1


async def test_a_non_transactional_batch_in_a_transaction_is_refused(
    client: Any, coordinator: ScriptedCoordinator
) -> None:
    assert await errors(client, request((0, transactional())), VERIFIES) == {0: 0}
    for name in ("tx", None):
        outside = request((0, idempotent(1)), name=name)
        assert await errors(client, outside, VERIFIES) == {0: ErrorCode.INVALID_TXN_STATE}


async def test_batches_that_cannot_be_appended_are_not_verified(client: Any, coordinator: ScriptedCoordinator) -> None:
    twice = transactional() + transactional(1)
    assert await errors(client, request((0, twice), (9, transactional())), ADDS) == {
        0: ErrorCode.INVALID_RECORD,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert coordinator.requests == []
