"""Responses that grow with the state of the broker: a long one is made in slices, whatever the request's size."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from itertools import islice
from typing import Any

import pytest
from broker.tests.alone import Node

from odradek_broker.apis import slices
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import ELEMENTS, Sliced, Slices, run_in_slices
from odradek_broker.apis.table import TABLE
from odradek_wire.apis import ApiKey
from odradek_wire.message import Message
from odradek_wire.messages.describe_configs import DescribeConfigsRequest
from odradek_wire.messages.describe_groups import DescribeGroupsRequest
from odradek_wire.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek_wire.messages.init_producer_id import InitProducerIdRequest
from odradek_wire.messages.list_groups import ListGroupsRequest
from odradek_wire.messages.list_transactions import ListTransactionsRequest
from odradek_wire.messages.metadata import MetadataRequest
from odradek_wire.messages.offset_commit import OffsetCommitRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.messages.produce import ProduceRequest

PARTITIONS = ELEMENTS + 100


def handled(node: Node, request: Message, version: int) -> Any:
    """Return what the handler returns: the response, or `Sliced` if it is made in slices."""
    (connection,) = node.server.connections
    ctx = Context(node.broker, connection, request.API_KEY, version, 1, "test")
    return TABLE[ApiKey(request.API_KEY)].handle(ctx, request)


async def commit(client: Any, group: str, topic: str, partitions: int = 1, offset: int = 7) -> None:
    committed = [OffsetCommitRequest.OffsetCommitRequestPartition(index, offset) for index in range(partitions)]
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(topic, partitions=committed)]
    response = await client.ask(OffsetCommitRequest(group, topics=topics), 8)
    assert {each.error_code for each in response.topics[0].partitions} == {0}


def all_offsets(version: int) -> OffsetFetchRequest:
    if version < 8:
        return OffsetFetchRequest("g", None)
    return OffsetFetchRequest(groups=[OffsetFetchRequest.OffsetFetchRequestGroup("g", topics=None)])


@pytest.mark.parametrize("version", [7, 8])
async def test_all_offsets_of_a_group_are_those_of_one_time(node: Node, client: Any, version: int) -> None:
    await client.create_topic("t", PARTITIONS)
    await client.create_topic("u")
    await client.create_topic("__consumer_offsets")
    await commit(client, "g", "t", PARTITIONS)
    await commit(client, "g", "u")
    work = handled(node, all_offsets(version), version)
    assert isinstance(work, Sliced)
    await commit(client, "g", "u", offset=8)
    response = await work.response
    found = response.topics if version < 8 else response.groups[0].topics
    offsets = {topic.name: {each.committed_offset for each in topic.partitions} for topic in found}
    assert offsets == {"t": {7}, "u": {7}}
    again = await client.ask(all_offsets(version), version)
    found = again.topics if version < 8 else again.groups[0].topics
    assert sorted(each.committed_offset for topic in found for each in topic.partitions) == [7] * PARTITIONS + [8]


async def test_a_long_response_describes_one_image(node: Node, client: Any) -> None:
    await client.create_topic("t", PARTITIONS)
    await client.create_topic("u")
    work = handled(node, MetadataRequest(None), 9)
    assert isinstance(work, Sliced)
    await client.create_topic("v")
    response = await work.response
    assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("t", PARTITIONS), ("u", 1)]
    assert [each.partition_index for each in response.topics[0].partitions] == list(range(PARTITIONS))


async def test_responses_about_many_partitions_are_made_in_slices(node: Node, client: Any) -> None:
    await client.create_topic("t", PARTITIONS)
    work = handled(node, DescribeLogDirsRequest(None), 4)
    assert isinstance(work, Sliced)
    (directory,) = (await work.response).results
    assert [each.partition_index for each in directory.topics[0].partitions] == list(range(PARTITIONS))
    work = handled(node, DescribeTopicPartitionsRequest([], response_partition_limit=2000), 0)
    assert isinstance(work, Sliced)
    assert len((await work.response).topics[0].partitions) == PARTITIONS


async def test_responses_about_many_groups_are_made_in_slices(node: Node, client: Any) -> None:
    await client.create_topic("t")
    await client.create_topic("__consumer_offsets")
    names = [f"group-{number}" for number in range(PARTITIONS)]
    for name in names:
        await commit(client, name, "t")
    work = handled(node, ListGroupsRequest(), 4)
    assert isinstance(work, Sliced)
    assert sorted(group.group_id for group in (await work.response).groups) == sorted(names)
    work = handled(node, DescribeGroupsRequest(names), 5)
    assert isinstance(work, Sliced)
    assert [group.group_id for group in (await work.response).groups] == names


async def test_many_transactional_ids_are_listed_in_slices_if_none_matches(node: Node, client: Any) -> None:
    await client.create_topic("__transaction_state")
    names = [f"transactional-id-{number}" for number in range(PARTITIONS)]
    for name in names:
        assert (await client.ask(InitProducerIdRequest(name, 60_000), 4)).error_code == 0
    for pattern, expected in ((".*", names), ("other", [])):
        work = handled(node, ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        assert isinstance(work, Sliced)
        assert sorted(row.transactional_id for row in (await work.response).transaction_states) == sorted(expected)


async def test_describe_configs_of_many_settings_is_made_in_slices(node: Node, client: Any) -> None:
    await client.create_topic("t")
    asked = [DescribeConfigsRequest.DescribeConfigsResource(2, "t", None)] * 50
    work = handled(node, DescribeConfigsRequest(asked), 4)
    assert isinstance(work, Sliced)
    results = (await work.response).results
    assert len(results) == 50
    assert {len(result.configs) for result in results} == {len(results[0].configs)}


# -- run_in_slices and Slices ------------------------------------------------------------------------------------------


def counting(steps: int, made: list[int]) -> Generator[int, None, str]:
    for number in range(steps):
        made.append(number)
        yield 1
    return "response"


def test_short_work_is_done_in_one_turn() -> None:
    made: list[int] = []
    assert run_in_slices(counting(ELEMENTS - 1, made)) == "response"
    assert len(made) == ELEMENTS - 1


async def test_long_work_lets_other_callbacks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "TURN_S", 0)
    made: list[int] = []
    work = run_in_slices(counting(2 * ELEMENTS, made))
    assert len(made) == ELEMENTS
    assert isinstance(work, Sliced)
    response = asyncio.ensure_future(work.response)
    seen = []
    while not response.done():
        seen.append(len(made))
        await asyncio.sleep(0)
    assert response.result() == "response"
    assert all(after - before <= 1 for before, after in zip(seen, islice(seen, 1, None), strict=False))


def test_a_heavy_entry_is_a_slice_of_its_own() -> None:
    divided = Slices(
        "topic_data",
        "responses",
        inner=("partition_data", "partition_responses"),
        elements=4,
        weigh=lambda data: len(data.records),
    )
    data = [
        ProduceRequest.PartitionProduceData(index, memoryview(b"x" * size))
        for index, size in enumerate([1, 1, 9, 1, 3, 1])
    ]
    parts = divided.divide(ProduceRequest(topic_data=[ProduceRequest.TopicProduceData("t", partition_data=data)]))
    found = [([each.index for each in part.topic_data[0].partition_data], continues) for part, continues in parts]
    assert found == [([0, 1], False), ([2], True), ([3, 4], True), ([5], True)]
