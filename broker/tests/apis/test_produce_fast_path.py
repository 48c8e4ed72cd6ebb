"""The fast path of Produce sends the same bytes as the general path."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from broker.tests.alone import Node

from odradek_broker.apis.produce_fast_path import fast_path
from odradek_broker.replication.partition import Partition
from odradek_wire.codec import encode
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.produce import ProduceRequest
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.uuid import ZERO_UUID, Uuid

MakeBatch = Callable[..., bytes]
MakeProduce = Callable[..., ProduceRequest]
TIME = 1_700_000_000_000
LONG_NAME = "long." + "x" * 200


def general(node: Node) -> Node:
    """Return the node with an interceptor, so that no request takes the fast path."""
    node.broker.interceptors.before_write.append(lambda ctx, request, response: None)
    return node


async def responses(client: Any, requests: list[tuple[ProduceRequest, str | None]], version: int) -> list[bytes]:
    found = []
    for request, client_id in requests:
        client.send(request, version, client_id)
        found.append(await client.receive_frame())
    return found


@pytest.mark.parametrize("version", range(7, 14))
async def test_fast_path_and_general_path_send_the_same_bytes(
    start_node: Any, connect: Any, make_batch: MakeBatch, make_produce: MakeProduce, version: int
) -> None:
    seen = []
    for node in (await start_node(data="fast"), general(await start_node(data="general"))):
        client = await connect(node)
        ids = dict.fromkeys(("t", LONG_NAME, "full", "missing"), ZERO_UUID)
        for name in ("t", LONG_NAME):
            ids[name] = await client.create_topic(name, partitions=3)
        ids["full"] = await client.create_topic("full", max_message_bytes="10")
        good = make_batch(b"a", b"b", timestamp=TIME)
        corrupt = bytearray(good)
        corrupt[-1] ^= 1
        both = make_produce("t", good, 0, -1, ids["t"])
        both.topic_data[0].partition_data.append(ProduceRequest.PartitionProduceData(1, good))
        plain: list[tuple[ProduceRequest, str | None]] = [
            (make_produce(name, records, partition, acks, ids[name]), client_id)
            for name, records, partition, acks, client_id in [
                ("t", good, 0, -1, "c"),
                ("t", good, 0, 1, None),
                ("t", good, 2, -1, ""),
                ("t", make_batch(b"x" * 20_000, timestamp=TIME), 0, -1, "c"),
                ("t", make_batch(b"x" * 300_000, timestamp=TIME), 0, -1, "c"),
                (LONG_NAME, good, 1, -1, "c"),
                ("t", bytes(corrupt), 0, -1, "c"),
                ("t", good + good, 0, -1, "c"),
                ("t", good[:70], 0, -1, "c"),
                ("t", b"", 0, -1, "c"),
                ("t", None, 0, -1, "c"),
                ("t", good, 9, -1, "c"),
                ("missing", good, 0, -1, "c"),
                ("full", good, 0, -1, "c"),
                ("full", good, 0, 1, "c"),
                ("t", good, 0, 5, "c"),
                ("t", good, 0, -1, "c"),
            ]
        ]
        received = await responses(client, [*plain, (both, "c")], version)
        for name in ids:
            if ids[name] != ZERO_UUID:
                received = [response.replace(ids[name], name[:16].encode().ljust(16)) for response in received]
        seen.append(received)
    assert seen[0] == seen[1]


async def test_the_fast_path_finds_a_topic_that_was_deleted_and_created_again(
    node: Node, client: Any, make_batch: MakeBatch
) -> None:
    for _ in range(3):
        await client.create_topic("t")
        assert [(await client.produce("t", make_batch(b"v"))).base_offset for _ in range(2)] == [0, 1]
        await node.reset()
        assert (await client.produce("t", make_batch(b"v"))).error_code != 0


async def test_the_fast_path_releases_partitions_of_a_deleted_topic(
    node: Node, client: Any, make_batch: MakeBatch, make_produce: MakeProduce
) -> None:
    for _ in range(2):
        topic_id = await client.create_topic("t", partitions=2)
        for version in (8, 12, 13):
            for index in range(2):
                await client.ask(make_produce("t", make_batch(b"v"), index, -1, topic_id), version)
        await node.reset()
        gc.collect()
        kept = [each for each in gc.get_objects() if isinstance(each, Partition) and each.topic_id == topic_id]
        assert kept == []


@pytest.mark.parametrize("version", [7, 8, 9, 12, 13])
async def test_the_fast_path_appends_nothing_of_a_truncated_request(
    node: Node, client: Any, make_batch: MakeBatch, make_produce: MakeProduce, version: int
) -> None:
    topic_id = await client.create_topic("t")
    body = encode(make_produce("t", make_batch(b"value"), 0, -1, topic_id), version)
    serve = fast_path(version)
    assert serve is not None
    partition = node.broker.partitions.get("t", 0)
    assert partition is not None
    (connection,) = node.server.connections
    for size in range(len(body)):
        assert serve(node.broker, connection, memoryview(bytearray(body[:size])), 0) is None
    assert partition.log_end_offset == 0
    assert serve(node.broker, connection, memoryview(bytearray(body)), 0) is not None
    assert partition.log_end_offset == 1


def test_versions_before_7_have_no_fast_path() -> None:
    assert [fast_path(version) for version in range(7)] == [None] * 7


async def test_requests_with_tagged_fields_take_the_general_path(
    client: Any, make_batch: MakeBatch, make_produce: MakeProduce
) -> None:
    topic_id = await client.create_topic("t")
    request = make_produce("t", make_batch(b"v"), 0, -1, Uuid(topic_id))
    request.unknown_tags = ((77, b"tag"),)
    answer = await client.ask(request, 12)
    assert answer.responses[0].partition_responses[0].error_code == 0


async def test_a_batch_for_a_topic_with_append_time_is_validated_once(client: Any) -> None:
    await client.create_topic("t", message_timestamp_type="LogAppendTime", max_message_bytes="1000")

    def batch(sequence: int, size: int) -> bytes:
        builder = BatchBuilder(producer_id=5, producer_epoch=0, base_sequence=sequence)
        builder.append(TIME, None, b"x" * size)
        return bytes(builder.build())

    codes = [(await client.produce("t", batch(*each))).error_code for each in ((0, 10), (7, 10), (1, 2000), (1, 10))]
    assert codes == [
        ErrorCode.NONE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NONE,
    ]


async def test_an_exception_in_the_fast_path_closes_the_connection_and_is_logged(
    node: Node,
    client: Any,
    make_batch: MakeBatch,
    make_produce: MakeProduce,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic_id = await client.create_topic("t")  # on the general path, with another client id

    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(Partition, "append", fail)
    client.send(make_produce("t", make_batch(b"v"), 0, -1, topic_id), 9, "fast-path-client")
    assert await client.is_closed_by_broker()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "handler failed; closing" in line]
    address = "client={}:{}".format(*client.writer.get_extra_info("sockname"))
    assert all(fact in line for fact in ("api='PRODUCE v9'", "client_id=fast-path-client", address))
