"""`transaction.version`: clients learn it by ApiVersions, coordinators follow it, and it outlives the process."""

from __future__ import annotations

from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.conftest import Connect, StartNode

from odradek_wire.errors import ErrorCode
from odradek_wire.messages.api_versions import ApiVersionsRequest
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest
from odradek_wire.messages.init_producer_id import InitProducerIdRequest
from odradek_wire.messages.transaction_log_value import TransactionLogValue
from odradek_wire.messages.update_features import UpdateFeaturesRequest
from odradek_wire.records.batch import iterate
from odradek_wire.records.record_codec import read_records

FEATURE = "transaction.version"
UPGRADE, DOWNGRADE = 1, 2


async def advertised_level(client: Any) -> int | None:
    """Return the level in the response of ApiVersions; None if it has none."""
    answer = await client.ask(ApiVersionsRequest("test", "1.0"), 4)
    return next((each.max_version_level for each in answer.finalized_features if each.name == FEATURE), None)


async def change(client: Any, level: int, kind: int) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(FEATURE, level, False, kind)
    assert (await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)).error_code == 0


async def begin(client: Any, name: str) -> None:
    await client.ask(FindCoordinatorRequest(name, 1), 3)
    waited_for = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)
    while (answer := await client.ask(InitProducerIdRequest(name, 60_000), 4)).error_code:
        assert answer.error_code in waited_for


def version_written_last(node: Node) -> int:
    """Return the version of the last value in `__transaction_state`."""
    partition = node.broker.partitions.get("__transaction_state", 0)
    assert partition is not None
    found = partition.log.read(0, 1 << 20)
    assert found is not None
    data = found.tobytes()
    (*_, last) = iterate(data)
    batch = data[last.position : last.end]
    last.position = 0
    (*_, record) = read_records(batch, last)
    assert record.value is not None
    version = int.from_bytes(record.value[:2])
    assert version <= TransactionLogValue.MAX_VERSION
    return version


@pytest.mark.parametrize(("release", "level"), [("union", 2), ("4.3", 2), ("4.0", 2), ("3.9", None)])
async def test_api_versions_returns_the_transaction_version_of_the_release(
    start_node: StartNode, connect: Connect, release: str, level: int | None
) -> None:
    node = await start_node(odradek_emulate=release)
    assert await advertised_level(await connect(node)) == level


async def test_a_change_of_the_transaction_version_is_applied_and_stored(
    start_node: StartNode, connect: Connect
) -> None:
    settings = {"transaction_state_log_num_partitions": "1"}
    node = await start_node(**settings)
    client = await connect(node)
    await begin(client, "a")
    assert (await advertised_level(client), version_written_last(node)) == (2, 1)
    await change(client, 0, DOWNGRADE)
    await begin(client, "b")
    assert (await advertised_level(client), version_written_last(node)) == (None, 0)
    await change(client, 1, UPGRADE)
    await begin(client, "c")
    assert (await advertised_level(client), version_written_last(node)) == (1, 1)
    await node.stop(grace_ms=100)

    node = await start_node(**settings)
    assert await advertised_level(await connect(node)) == 1


async def test_a_release_without_transaction_version_refuses_to_set_it(start_node: StartNode, connect: Connect) -> None:
    client = await connect(await start_node(odradek_emulate="3.9"))
    update = UpdateFeaturesRequest.FeatureUpdateKey(FEATURE, 2, False, UPGRADE)
    answer = await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 1)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
