"""Metadata, ListOffsets, epochs, DeleteRecords and the describing APIs through a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.manual_clock import ManualClock

from odradek_broker.metadata.view import AUTHORIZED_OPERATIONS_OMITTED
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_records import DeleteRecordsRequest
from odradek_wire.messages.describe_cluster import DescribeClusterRequest
from odradek_wire.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek_wire.messages.describe_producers import DescribeProducersRequest
from odradek_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek_wire.messages.init_producer_id import InitProducerIdRequest
from odradek_wire.messages.list_offsets import ListOffsetsRequest
from odradek_wire.messages.metadata import MetadataRequest
from odradek_wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.uuid import Uuid

MakeBatch = Callable[..., bytes]


def named(*names: str, create: bool = True) -> MetadataRequest:
    return MetadataRequest([MetadataRequest.MetadataRequestTopic(name=name) for name in names], create)


# -- Metadata ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(14))
async def test_every_version_of_metadata_returns_brokers_and_leaders(client: Any, node: Node, version: int) -> None:
    topic_id = await client.create_topic("t", partitions=2)
    response = await client.ask(named("t"), version)
    assert [(broker.node_id, broker.host, broker.port) for broker in response.brokers] == [(0, "127.0.0.1", node.port)]
    topic = response.topics[0]
    assert (topic.error_code, topic.name) == (ErrorCode.NONE, "t")
    assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in topic.partitions] == [
        (0, 0, [0], [0]),
        (1, 0, [0], [0]),
    ]
    if version >= 10:
        assert topic.topic_id == topic_id
    if version >= 2:
        assert response.cluster_id == node.broker.image.cluster_id


@pytest.mark.parametrize(("version", "everything"), [(0, []), (1, None), (12, None)])
async def test_null_means_all_topics_and_so_does_an_empty_list_in_version_0(
    client: Any, version: int, everything: list[Any] | None
) -> None:
    await client.create_topic("b")
    await client.create_topic("a")
    response = await client.ask(MetadataRequest(everything), version)
    assert [topic.name for topic in response.topics] == ["a", "b"]


async def test_a_missing_topic_is_created_if_client_and_broker_allow_it(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node(num_partitions="3"))
    forbidden = (await client.ask(named("t", create=False), 9)).topics[0]
    assert (forbidden.error_code, forbidden.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    created = (await client.ask(named("t"), 9)).topics[0]
    assert (created.error_code, len(created.partitions)) == (ErrorCode.NONE, 3)

    other = await connect(await start_node(data="other", auto_create_topics_enable="false"))
    assert (await other.ask(named("t"), 9)).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_impossible_name_is_an_invalid_topic(client: Any) -> None:
    for create in (True, False):
        response = await client.ask(named("a b", "..", "x" * 250, create=create), 9)
        assert {topic.error_code for topic in response.topics} == {ErrorCode.INVALID_TOPIC_EXCEPTION}


async def test_topics_are_found_by_id_from_version_12(client: Any) -> None:
    topic_id = await client.create_topic("t")
    wanted = [
        MetadataRequest.MetadataRequestTopic(topic_id, None),
        MetadataRequest.MetadataRequestTopic(Uuid(b"x" * 16), None),
    ]
    response = await client.ask(MetadataRequest(wanted), 12)
    assert {(topic.topic_id, topic.name, topic.error_code) for topic in response.topics} == {
        (topic_id, "t", ErrorCode.NONE),
        (b"x" * 16, None, ErrorCode.UNKNOWN_TOPIC_ID),
    }


async def test_authorized_operations_are_returned_on_request(client: Any) -> None:
    await client.create_topic("t")
    silent = await client.ask(named("t"), 9)
    assert (silent.cluster_authorized_operations, silent.topics[0].topic_authorized_operations) == (
        AUTHORIZED_OPERATIONS_OMITTED,
        AUTHORIZED_OPERATIONS_OMITTED,
    )
    request = named("t")
    request.include_cluster_authorized_operations = request.include_topic_authorized_operations = True
    found = await client.ask(request, 9)
    assert (found.cluster_authorized_operations, found.topics[0].topic_authorized_operations) == (8096, 3576)


# -- ListOffsets ------------------------------------------------------------------------------------------------------


def list_request(timestamp: int, topic: str = "t", partition: int = 0, epoch: int = -1) -> ListOffsetsRequest:
    return ListOffsetsRequest(
        -1,
        0,
        [
            ListOffsetsRequest.ListOffsetsTopic(
                topic, [ListOffsetsRequest.ListOffsetsPartition(partition, epoch, timestamp)]
            )
        ],
    )


async def look_up(client: Any, timestamp: int, version: int = 11) -> tuple[int, int, int]:
    """Return (offset, timestamp, leader epoch)."""
    response = await client.ask(list_request(timestamp), version)
    answer = response.topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE
    return answer.offset, answer.timestamp, answer.leader_epoch


async def test_offsets_are_found_by_time(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t")
    for timestamp in (1000, 3000, 2000):
        await client.produce("t", make_batch(b"a", b"b", timestamp=timestamp))
    assert {timestamp: await look_up(client, timestamp) for timestamp in (-1, -2, -3, -4, -5, -6, 0, 1001, 3001)} == {
        -1: (6, -1, 0),
        -2: (0, -1, 0),
        -3: (2, 3000, 0),
        -4: (0, -1, 0),
        -5: (-1, -1, -1),
        -6: (-1, -1, -1),
        0: (0, 1000, 0),
        1001: (2, 3000, 0),
        3001: (-1, -1, -1),
    }


async def test_the_largest_timestamp_may_be_that_of_a_deleted_record(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t")
    for timestamp in (1000, 3000, 2000):
        await client.produce("t", make_batch(b"a", b"b", timestamp=timestamp))
    assert (await client.ask(delete_request(5), 2)).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert {timestamp: await look_up(client, timestamp) for timestamp in (-2, -3, 0, 2001)} == {
        -2: (5, -1, 0),
        -3: (2, 3000, 0),
        0: (5, 2000, 0),
        2001: (-1, -1, -1),
    }


@pytest.mark.parametrize("version", range(12))
async def test_every_version_of_list_offsets_finds_the_ends(client: Any, make_batch: MakeBatch, version: int) -> None:
    await client.create_topic("t")
    await client.produce("t", make_batch(b"a", b"b"))
    for timestamp, expected in ((-1, 2), (-2, 0)):
        answer = (await client.ask(list_request(timestamp), version)).topics[0].partitions[0]
        assert (answer.old_style_offsets if version == 0 else [answer.offset]) == [expected]


@pytest.mark.parametrize(("timestamp", "first"), [(-3, 7), (-4, 8), (-5, 9), (-6, 11), (-7, 12)])
async def test_a_special_timestamp_is_not_served_before_its_version(client: Any, timestamp: int, first: int) -> None:
    await client.create_topic("t")
    response = await client.ask(list_request(timestamp), first - 1)
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNSUPPORTED_VERSION


async def test_list_offsets_has_an_error_for_each_partition(client: Any) -> None:
    await client.create_topic("t")
    repeated = list_request(-1)
    repeated.topics[0].partitions *= 2
    cases = [
        (list_request(-1, "missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (list_request(-1, partition=5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (list_request(-1, epoch=5), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (repeated, ErrorCode.INVALID_REQUEST),
    ]
    for request, expected in cases:
        assert (await client.ask(request, 9)).topics[0].partitions[0].error_code == expected


@pytest.mark.parametrize("version", range(5))
async def test_every_version_of_offset_for_leader_epoch_returns_end_offsets(
    client: Any, make_batch: MakeBatch, version: int
) -> None:
    await client.create_topic("t")
    await client.produce("t", make_batch(b"a", b"b"))
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(0, -1, 0)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic("t", [wanted])])
    answer = (await client.ask(request, version)).topics[0].partitions[0]
    assert (answer.error_code, answer.partition, answer.end_offset) == (ErrorCode.NONE, 0, 2)


# -- DeleteRecords and retention --------------------------------------------------------------------------------------


def delete_request(offset: int, topic: str = "t") -> DeleteRecordsRequest:
    return DeleteRecordsRequest(
        [DeleteRecordsRequest.DeleteRecordsTopic(topic, [DeleteRecordsRequest.DeleteRecordsPartition(0, offset)])],
        1000,
    )


@pytest.mark.parametrize("version", range(3))
async def test_records_are_deleted_up_to_an_offset(client: Any, make_batch: MakeBatch, version: int) -> None:
    await client.create_topic("t")
    await client.produce("t", make_batch(b"a", b"b", b"c"))
    results = []
    for offset in (2, 9, -1, -2):
        answer = (await client.ask(delete_request(offset), version)).topics[0].partitions[0]
        results.append((answer.error_code, answer.low_watermark))
    refused = (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert results == [(0, 2), refused, (0, 3), refused]
    assert await look_up(client, -2) == (3, -1, 0)


async def test_the_log_start_offset_checkpoint_has_its_own_schedule(
    start_node: Any, connect: Any, make_batch: MakeBatch, tmp_path: Path
) -> None:
    clock = ManualClock()
    never = str(2**31 - 1)
    node = await start_node(
        clock=clock,
        log_flush_start_offset_checkpoint_interval_ms="1000",
        log_flush_offset_checkpoint_interval_ms=never,
    )
    client = await connect(node)
    await client.create_topic("t")
    await client.produce("t", make_batch(b"a", b"b", b"c", timestamp=clock.wall_ms()))
    assert (await client.ask(delete_request(2), 2)).topics[0].partitions[0].error_code == 0
    clock.advance_timeouts(1000)
    written = tmp_path / "data" / "log-start-offset-checkpoint"
    async with asyncio.timeout(10):
        while not (written.exists() and "t 0 2" in written.read_text()):
            await asyncio.sleep(0)


async def test_records_of_a_compacted_or_missing_topic_are_not_deleted(client: Any) -> None:
    await client.create_topic("compacted", cleanup_policy="compact")
    await client.create_topic("neither", cleanup_policy="")
    errors = [
        (await client.ask(delete_request(-1, topic), 2)).topics[0].partitions[0].error_code
        for topic in ("compacted", "missing", "neither")
    ]
    assert errors == [ErrorCode.POLICY_VIOLATION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


async def test_retention_follows_the_clocks_that_the_user_moves(
    start_node: Any, connect: Any, make_batch: MakeBatch
) -> None:
    clock = ManualClock()
    client = await connect(await start_node(clock=clock))
    await client.create_topic("t", retention_ms="60000", segment_bytes="1048576")
    for _ in range(3):
        await client.produce("t", make_batch(b"x" * 900_000, timestamp=clock.wall_ms()))
    clock.advance_wall(60_001)
    assert await look_up(client, -2) == (0, -1, 0)
    clock.advance_timeouts(300_000)
    assert await look_up(client, -2) == (3, -1, 0)


# -- describing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3))
async def test_every_version_of_describe_cluster_returns_the_brokers(client: Any, node: Node, version: int) -> None:
    response = await client.ask(DescribeClusterRequest(), version)
    assert (response.error_code, response.cluster_id, response.controller_id) == (0, node.broker.image.cluster_id, 0)
    assert [(broker.broker_id, broker.port) for broker in response.brokers] == [(0, node.port)]


async def test_controllers_are_not_described_on_a_brokers_listener(client: Any) -> None:
    response = await client.ask(DescribeClusterRequest(endpoint_type=2), 1)
    assert response.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    response = await client.ask(DescribeClusterRequest(endpoint_type=3), 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


async def test_topic_partitions_come_page_by_page_with_empty_lists_never_null(client: Any) -> None:
    for name in ("a", "b"):
        await client.create_topic(name, partitions=3)
    pages = []
    cursor = None
    while True:
        request = DescribeTopicPartitionsRequest([], 2, cursor)
        response = await client.ask(request, 0)
        for topic in response.topics:
            assert topic.error_code == ErrorCode.NONE
            for partition in topic.partitions:
                assert (partition.eligible_leader_replicas, partition.last_known_elr) == ([], [])
        pages.append([(topic.name, len(topic.partitions)) for topic in response.topics])
        if response.next_cursor is None:
            break
        cursor = DescribeTopicPartitionsRequest.Cursor(
            response.next_cursor.topic_name, response.next_cursor.partition_index
        )
    assert pages == [[("a", 2)], [("a", 1), ("b", 1)], [("b", 2)]]


async def test_requested_topics_that_do_not_exist_have_an_error(client: Any) -> None:
    topics = [DescribeTopicPartitionsRequest.TopicRequest(name) for name in ("missing", "a b")]
    response = await client.ask(DescribeTopicPartitionsRequest(topics), 0)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_describe_log_dirs_returns_sizes(
    client: Any, node: Node, make_batch: MakeBatch, version: int
) -> None:
    await client.create_topic("t", partitions=2)
    one = make_batch(b"v")
    await client.produce("t", one)
    for wanted in (None, [DescribeLogDirsRequest.DescribableLogDirTopic("t", [0, 1])]):
        response = await client.ask(DescribeLogDirsRequest(wanted), version)
        result = response.results[0]
        assert (response.error_code, result.log_dir) == (0, node.broker.log_directories.all[0].path)
        assert [(topic.name, [p.partition_size for p in topic.partitions]) for topic in result.topics] == [
            ("t", [len(one), 0])
        ]


async def test_the_producers_of_a_partition_are_described(client: Any) -> None:
    await client.create_topic("t")
    identity = await client.ask(InitProducerIdRequest(None, 0), 4)
    builder = BatchBuilder(producer_id=identity.producer_id, producer_epoch=0, base_sequence=0)
    builder.append(1_700_000_000_000, None, b"v")
    builder.append(1_700_000_000_000, None, b"v")
    await client.produce("t", bytes(builder.build()))
    request = DescribeProducersRequest([DescribeProducersRequest.TopicRequest("t", [0, 7])])
    found, missing = (await client.ask(request, 0)).topics[0].partitions
    assert [(p.producer_id, p.producer_epoch, p.last_sequence) for p in found.active_producers] == [
        (identity.producer_id, 0, 1)
    ]
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
