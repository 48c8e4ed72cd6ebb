"""Requests with many elements: served in slices up to a limit, and other clients do not wait for them."""

from __future__ import annotations

import asyncio
import gc
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from broker.tests.alone import Node

from odradek_broker.apis import slices
from odradek_broker.metadata.directory_identity import directory_id_of
from odradek_log.directory import LogDirectory
from odradek_wire.apis import APIS
from odradek_wire.errors import ErrorCode
from odradek_wire.frames import decode_response, encode_request
from odradek_wire.message import Message
from odradek_wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from odradek_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek_wire.messages.create_partitions import CreatePartitionsRequest
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.describe_configs import DescribeConfigsRequest
from odradek_wire.messages.fetch import FetchRequest
from odradek_wire.messages.list_offsets import ListOffsetsRequest
from odradek_wire.messages.metadata import MetadataRequest
from odradek_wire.messages.offset_commit import OffsetCommitRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.records.conversion import read_any

T = TypeVar("T")
LOOP_MAX_S = 0.05
"""CPU time that the event loop's thread may take for one turn of the loop."""
TOPICS = [f"topic-{number}" for number in range(1000)]


def exchange(port: int, frame: bytes) -> bytes | None:
    """Send a request over a connection of its own and return the response; None if the broker closes it."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        try:
            connection.sendall(struct.pack(">i", len(frame)) + frame)
            with connection.makefile("rb") as stream:
                head = stream.read(4)
                return stream.read(struct.unpack(">i", head)[0]) if len(head) == 4 else None
        except ConnectionError:
            return None


class Probe:
    """CPU time of the longest turn of the event loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self.turns = 0

    async def run(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.thread_time() - before)
            self.turns += 1


@asynccontextmanager
async def probing() -> AsyncIterator[Probe]:
    gc.collect()
    gc.freeze()  # the collector would look through what earlier tests have left
    probe = Probe()
    task = asyncio.create_task(probe.run())
    try:
        yield probe
    finally:
        task.cancel()
        gc.unfreeze()


async def ask(node: Node, request: Message, version: int) -> tuple[Any, Probe]:
    """Return the response to a request from another thread, and the turns of the event loop that it took."""
    frame = await asyncio.to_thread(encode_request, request, version, 1, "long")
    async with probing() as probe:
        answer = await asyncio.to_thread(exchange, node.port, frame)
    assert answer is not None
    return decode_response(APIS[request.API_KEY].response_class(), version, answer)[1], probe


async def create(node: Node, names: list[str], partitions: int = 1) -> Probe:
    request = CreateTopicsRequest([CreateTopicsRequest.CreatableTopic(name, partitions, 1, [], []) for name in names])
    response, probe = await ask(node, request, 7)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [(name, 0) for name in names]
    return probe


async def test_5_million_names_are_refused_and_others_are_served_meanwhile(
    node: Node, connect: Callable[..., Awaitable[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    head = struct.pack(">hhih", MetadataRequest.API_KEY, 4, 1, -1)
    frame = head + struct.pack(">i", 5_000_000) + b"\x00\x01a" * 5_000_000 + b"\x01"
    other = await connect(node)
    async with probing() as probe:
        assert await asyncio.to_thread(exchange, node.port, frame) is None
        assert (await other.ask(ApiVersionsRequest(), 0)).error_code == 0
    assert probe.longest_s < LOOP_MAX_S
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "too many elements" in line]
    assert "setting=odradek.request.elements.max" in line
    assert "elements_max=200000" in line
    async with asyncio.timeout(10):
        while node.server.buffers.budget.used or node.server.long_requests.elements:
            await asyncio.sleep(0)


@pytest.mark.parametrize("where", ["header", "body"])
async def test_a_million_tagged_fields_are_refused(node: Node, where: str) -> None:
    head = struct.pack(">hhih", MetadataRequest.API_KEY, 9, 1, -1)
    tags = b"\xc0\x84\x3d" + b"".join(
        bytes((tag & 127 | 128, tag >> 7 & 127 | 128, tag >> 14 & 127 | 128, 0, 0)) for tag in range(1_000_000)
    )
    frame = head + tags if where == "header" else head + b"\0" + b"\0\0\0\0" + tags
    async with probing() as probe:
        assert await asyncio.to_thread(exchange, node.port, frame) is None
    assert probe.longest_s < LOOP_MAX_S


async def test_the_limit_is_a_setting(start_node: Any) -> None:
    node = await start_node(odradek_request_elements_max="1500")
    for count, served in ((1500, True), (1501, False)):
        asked = [MetadataRequest.MetadataRequestTopic(name=f"t{number}") for number in range(count)]
        frame = encode_request(MetadataRequest(asked, allow_auto_topic_creation=False), 9, 1, "long")
        assert (await asyncio.to_thread(exchange, node.port, frame) is not None) == served


async def test_metadata_of_10000_topics_is_served_in_slices(node: Node) -> None:
    assert (await create(node, TOPICS)).longest_s < LOOP_MAX_S
    names = TOPICS + [f"unknown-{number}" for number in range(9000)]
    asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    response, probe = await ask(node, MetadataRequest(asked, allow_auto_topic_creation=False), 9)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        (name, 0 if number < 1000 else unknown) for number, name in enumerate(names)
    ]
    assert probe.longest_s < LOOP_MAX_S


async def test_metadata_of_all_topics_is_served_in_slices(node: Node) -> None:
    await create(node, TOPICS[:500], 10)
    await create(node, [*TOPICS[500:], "another"])
    response, probe = await ask(node, MetadataRequest(None), 9)
    assert [topic.name for topic in response.topics] == sorted([*TOPICS, "another"])
    assert sum(len(topic.partitions) for topic in response.topics) == 5501
    assert probe.longest_s < LOOP_MAX_S


async def test_describe_configs_of_10000_topics_is_served_in_slices(node: Node) -> None:
    await create(node, TOPICS)
    names = TOPICS * 10
    asked = [DescribeConfigsRequest.DescribeConfigsResource(2, name, ["retention.ms"]) for name in names]
    response, probe = await ask(node, DescribeConfigsRequest(asked), 4)
    assert [(result.resource_name, len(result.configs)) for result in response.results] == [(name, 1) for name in names]
    assert probe.longest_s < LOOP_MAX_S


@pytest.mark.parametrize("version", [7, 8])
async def test_offset_fetch_of_50000_partitions_is_served_in_slices(node: Node, version: int) -> None:
    Group, Topic = OffsetFetchRequest.OffsetFetchRequestGroup, OffsetFetchRequest.OffsetFetchRequestTopics
    OldTopic = OffsetFetchRequest.OffsetFetchRequestTopic
    asked = {"short": list(range(10)), "long": list(range(49_980)), "last": list(range(10))}
    if version < 8:
        request = OffsetFetchRequest("g", [OldTopic(name, indexes) for name, indexes in asked.items()])
    else:
        topics = [Topic(name, partition_indexes=indexes) for name, indexes in asked.items()]
        request = OffsetFetchRequest(groups=[Group("other", topics=[]), Group("g", topics=topics)])
    await create(node, ["__consumer_offsets"], 3)
    async with asyncio.timeout(10):
        response, probe = await ask(node, request, version)
    found = response.topics if version < 8 else response.groups[1].topics
    assert {topic.name: [each.partition_index for each in topic.partitions] for topic in found} == asked
    assert probe.longest_s < LOOP_MAX_S


async def test_fetch_of_20000_partitions_is_served_in_slices(
    node: Node, connect: Callable[..., Awaitable[Any]], make_batch: Callable[..., bytes]
) -> None:
    await create(node, TOPICS)
    client = await connect(node)
    names = TOPICS + [f"unknown-{number}" for number in range(19_000)]
    wanted = FetchRequest.FetchPartition(0, fetch_offset=0, partition_max_bytes=1000)
    assert (await client.produce(TOPICS[-1], make_batch(b"x"))).error_code == 0
    request = FetchRequest(
        max_wait_ms=0, session_epoch=0, topics=[FetchRequest.FetchTopic(name, partitions=[wanted]) for name in names]
    )
    response, probe = await ask(node, request, 12)
    assert [topic.topic for topic in response.responses] == names
    assert [topic.topic for topic in response.responses if topic.partitions[0].records] == [TOPICS[-1]]
    assert probe.longest_s < LOOP_MAX_S
    request = FetchRequest(max_wait_ms=0, session_id=response.session_id, session_epoch=1)
    response, probe = await ask(node, request, 12)
    assert len(response.responses) == 19_001
    assert probe.longest_s < LOOP_MAX_S


async def test_a_long_fetch_waits_for_records(
    node: Node, connect: Callable[..., Awaitable[Any]], make_batch: Callable[..., bytes]
) -> None:
    client, writer = await connect(node), await connect(node)
    await create(node, ["t"], 1500)
    wanted = [FetchRequest.FetchPartition(index, fetch_offset=0, partition_max_bytes=1000) for index in range(1500)]
    topics = [FetchRequest.FetchTopic("t", partitions=wanted)]
    client.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, session_epoch=-1, topics=topics), 12)
    async with asyncio.timeout(10):
        while not len(node.broker.purgatory):
            await asyncio.sleep(0)
    assert (await writer.produce("t", make_batch(b"x"), 700)).error_code == 0
    _, response = await client.receive(APIS[1].response_class(), 12)
    assert [each.partition_index for each in response.responses[0].partitions if each.records] == [700]


async def test_produce_to_2000_partitions_is_served_in_slices(node: Node, make_batch: Callable[..., bytes]) -> None:
    await create(node, ["t"], 2000)
    data = [ProduceRequest.PartitionProduceData(index, make_batch(b"x")) for index in range(2000)]
    request = ProduceRequest(None, -1, 5000, [ProduceRequest.TopicProduceData("t", partition_data=data)])
    response, probe = await ask(node, request, 9)
    (topic,) = response.responses
    assert [(each.index, each.error_code, each.base_offset) for each in topic.partition_responses] == [
        (index, 0, 0) for index in range(2000)
    ]
    assert probe.longest_s < LOOP_MAX_S


async def test_produce_of_90_megabytes_is_served_in_slices(
    node: Node, connect: Callable[..., Awaitable[Any]], make_batch: Callable[..., bytes]
) -> None:
    client = await connect(node)
    await client.create_topic("t", 20, max_message_bytes="10000000")
    records = make_batch(b"x" * 4_500_000)
    data = [ProduceRequest.PartitionProduceData(index, records) for index in range(20)]
    request = ProduceRequest(None, -1, 5000, [ProduceRequest.TopicProduceData("t", partition_data=data)])
    response, probe = await ask(node, request, 9)
    (topic,) = response.responses
    assert [(each.index, each.error_code) for each in topic.partition_responses] == [(index, 0) for index in range(20)]
    assert probe.longest_s < LOOP_MAX_S
    assert node.server.buffers.budget.used == 0


async def produce_and_disconnect(node: Node, records: bytes, partitions: int) -> None:
    """Create a topic, and send a Produce with acks=0 to all of its partitions, without waiting for anything."""
    await create(node, ["t"], partitions)
    data = [ProduceRequest.PartitionProduceData(index, records) for index in range(partitions)]
    request = ProduceRequest(None, 0, 5000, [ProduceRequest.TopicProduceData("t", partition_data=data)])
    frame = encode_request(request, 9, 1, "leaving")
    _reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(struct.pack(">i", len(frame)) + frame)
    writer.close()


async def test_a_large_produce_is_appended_although_the_client_disconnects(
    node: Node, make_batch: Callable[..., bytes]
) -> None:
    await produce_and_disconnect(node, make_batch(b"x"), 200)
    async with asyncio.timeout(10):
        while any(partition.log_end_offset == 0 for partition in node.broker.partitions):
            await asyncio.sleep(0)
        while node.server.buffers.budget.used:
            await asyncio.sleep(0)


async def test_a_large_produce_ends_with_the_broker(node: Node, make_batch: Callable[..., bytes]) -> None:
    await produce_and_disconnect(node, make_batch(b"x"), 900)
    async with asyncio.timeout(10):
        while not any(partition.log_end_offset for partition in node.broker.partitions):
            await asyncio.sleep(0)
        node.server.abort()
        node.broker.timers.close()
        appended = sum(partition.log_end_offset for partition in node.broker.partitions)
        while node.server.buffers.budget.used:
            await asyncio.sleep(0)
    assert sum(partition.log_end_offset for partition in node.broker.partitions) == appended < 900


async def test_requests_after_a_large_produce_wait_for_it(
    connect: Callable[..., Awaitable[Any]], node: Node, make_batch: Callable[..., bytes]
) -> None:
    client = await connect(node)
    await client.create_topic("t", 10, max_message_bytes="10000000")
    values = [bytes((number,)) * 2_000_000 for number in range(10)]
    data = [ProduceRequest.PartitionProduceData(index, make_batch(value)) for index, value in enumerate(values)]
    request = ProduceRequest(None, -1, 5000, [ProduceRequest.TopicProduceData("t", partition_data=data)])
    sent = [client.send(request, 9), client.send(ApiVersionsRequest(), 0), client.send(request, 9)]
    received = []
    for response_class, version in ((ProduceResponse, 9), (ApiVersionsResponse, 0), (ProduceResponse, 9)):
        correlation_id, response = await client.receive(response_class, version)
        received.append(correlation_id)
        if isinstance(response, ProduceResponse):
            assert {each.error_code for each in response.responses[0].partition_responses} == {0}
    assert received == sent
    for index, value in enumerate(values):
        partition = node.broker.partitions.get("t", index)
        assert partition is not None
        batches = partition.log.read(0, 10_000_000)
        assert batches is not None
        assert [bytes(record.value or b"") for record in read_any(batches.tobytes())] == [value, value]


async def test_offsets_of_2000_partitions_are_listed_and_committed_in_slices(node: Node) -> None:
    await create(node, ["t"], 2000)
    await create(node, ["__consumer_offsets"], 3)
    asked = [ListOffsetsRequest.ListOffsetsPartition(index, timestamp=-1) for index in range(2000)]
    listed, probe = await ask(node, ListOffsetsRequest(-1, topics=[ListOffsetsRequest.ListOffsetsTopic("t", asked)]), 7)
    assert [each.partition_index for each in listed.topics[0].partitions] == list(range(2000))
    assert probe.longest_s < LOOP_MAX_S
    committed = [OffsetCommitRequest.OffsetCommitRequestPartition(index, 7) for index in range(2000)]
    request = OffsetCommitRequest("g", topics=[OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=committed)])
    response, probe = await ask(node, request, 8)
    assert [(each.partition_index, each.error_code) for each in response.topics[0].partitions] == [
        (index, 0) for index in range(2000)
    ]
    assert probe.longest_s < LOOP_MAX_S


@pytest.mark.parametrize("version", [5, 6])
async def test_1000_topics_are_deleted_in_slices(node: Node, version: int) -> None:
    await create(node, TOPICS)
    request = DeleteTopicsRequest(topic_names=TOPICS, timeout_ms=5000)
    if version >= 6:
        request = DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState(name) for name in TOPICS], timeout_ms=5000)
    response, probe = await ask(node, request, version)
    assert [(each.name, each.error_code) for each in response.responses] == [(name, 0) for name in TOPICS]
    assert node.broker.image.topics == {}
    assert probe.longest_s < LOOP_MAX_S


async def test_2000_partitions_of_a_topic_are_created_and_deleted_in_turns(node: Node, connect: Any) -> None:
    client = await connect(node)
    created = await create(node, ["t"], 2000)
    assert [partition.index for partition in node.broker.partitions.of_topic("t")] == list(range(2000))
    assert {partition.error for partition in node.broker.partitions} == {ErrorCode.NONE}
    added = CreatePartitionsRequest([CreatePartitionsRequest.CreatePartitionsTopic("t", 4000, None)], 5000, False)
    response, grown = await ask(node, added, 3)
    assert [each.error_code for each in response.results] == [0]
    assert len(node.broker.partitions) == 4000
    deletion = DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("t")], timeout_ms=5000)
    response, deleted = await ask(node, deletion, 6)
    assert [each.error_code for each in response.responses] == [0]
    assert len(node.broker.partitions) == 0
    (directory,) = node.broker.log_directories.all
    assert directory.logs == {}
    assert [probe.longest_s < LOOP_MAX_S for probe in (created, grown, deleted)] == [True] * 3
    await client.create_topic("t")
    assert [log.topic_id for log in directory.logs.values()] == [node.broker.image.topics["t"].id]


async def deleting(node: Node, monkeypatch: pytest.MonkeyPatch) -> tuple[Awaitable[Any], LogDirectory]:
    """Return the deletion of a topic with 300 partitions, of which some logs exist, and their directory."""
    await create(node, ["t"], 300)
    (directory,) = node.broker.log_directories.all
    monkeypatch.setattr(slices, "TURN_S", 0)
    request = DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("t")], timeout_ms=5000)
    deletion = asyncio.ensure_future(node.controller.submit(request))
    while len(directory.logs) == 300:
        await asyncio.sleep(0)
    assert 200 < len(directory.logs) < 300
    return deletion, directory


async def test_a_stop_during_a_deletion_deletes_the_remaining_logs(
    start_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_node()
    deletion, directory = await deleting(node, monkeypatch)
    await node.stop()
    await deletion
    assert directory.logs == {}
    await start_node()
    assert [each.name for each in Path(directory.path).glob("t-*") if not each.name.endswith("-delete")] == []


async def test_a_kill_during_a_deletion_leaves_the_remaining_logs(
    start_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_node()
    deletion, directory = await deleting(node, monkeypatch)
    await node.kill()
    await deletion
    assert len(directory.logs) > 200


@pytest.mark.parametrize("partitions", [1, 300])
async def test_logs_of_a_deleted_topic_are_deleted_after_an_error_in_another_part(
    node: Node, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    await create(node, ["t"], partitions)

    def fail(_: object) -> None:
        raise ValueError("an error in another part")

    monkeypatch.setattr(node.broker.assignments_manager, "report", fail)
    request = DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("t")], timeout_ms=5000)
    await node.controller.submit(request)
    (directory,) = node.broker.log_directories.all
    assert directory.logs == {}


async def test_all_moves_of_a_request_begin_after_a_disconnect(
    start_node: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await start_node(log_dirs=f"{tmp_path}/a,{tmp_path}/b")
    await create(node, ["t"], 300)
    target = node.broker.log_directories.all[1]
    partitions = list(node.broker.partitions)
    to_move = [partition for partition in partitions if partition.directory is not target]
    assert len(to_move) > 100
    topic = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic("t", [each.index for each in to_move])
    request = AlterReplicaLogDirsRequest([AlterReplicaLogDirsRequest.AlterReplicaLogDir(f"{tmp_path}/b", [topic])])
    monkeypatch.setattr(slices, "TURN_S", 0)

    def begun() -> int:
        manager = node.broker.alter_log_dirs_manager
        return sum(each.directory is target or manager.destination(each) is target for each in to_move)

    frame = encode_request(request, 2, 1, "long")
    _reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(struct.pack(">i", len(frame)) + frame)
    async with asyncio.timeout(10):
        while not begun():
            await asyncio.sleep(0)
        assert begun() < len(to_move)
        writer.transport.abort()
        while begun() < len(to_move):
            await asyncio.sleep(0)


async def test_log_directories_of_2000_replicas_are_assigned_in_several_changes(
    start_node: Any, tmp_path: Path
) -> None:
    node = await start_node(log_dirs=f"{tmp_path}/a,{tmp_path}/b")
    known = {directory_id_of(directory) for directory in node.broker.log_directories.all}
    async with probing() as probe, asyncio.timeout(30):
        created = asyncio.ensure_future(create(node, ["t"], 2000))
        while not created.done() or any(
            partition.directories[0] not in known for partition in node.broker.image.topics["t"].partitions
        ):
            await asyncio.sleep(0)
    assert probe.longest_s < LOOP_MAX_S


async def test_a_disconnect_during_a_long_request_releases_its_memory(node: Node) -> None:
    asked = [MetadataRequest.MetadataRequestTopic(name=f"t{number}") for number in range(20_000)]
    frame = encode_request(MetadataRequest(asked, allow_auto_topic_creation=False), 9, 1, "long")
    for _ in range(5):
        _reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(struct.pack(">i", len(frame)) + frame)
        async with asyncio.timeout(10):
            while not node.server.long_requests.elements:
                await asyncio.sleep(0)
        writer.transport.abort()
    async with asyncio.timeout(10):
        while node.server.buffers.budget.used or node.server.long_requests.elements or node.server.connections:
            await asyncio.sleep(0)
