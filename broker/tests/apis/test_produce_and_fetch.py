"""Produce and Fetch through a socket: every version, waits, limits, sessions, errors."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.fetches import fetch, fetch_request, values

from odradek_log.disk import RealDisk
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.messages.init_producer_id import InitProducerIdRequest
from odradek_wire.messages.produce import ProduceRequest
from odradek_wire.records.batch import iterate, read_header
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.conversion import down_convert, read_any
from odradek_wire.uuid import Uuid

MakeBatch = Callable[..., bytes]


# -- every version ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(14))
async def test_every_version_of_produce_appends(client: Any, make_batch: MakeBatch, version: int) -> None:
    topic_id = await client.create_topic("t")
    records = make_batch(b"one", b"two")
    if version < 3:
        records = bytes(down_convert(records, 0 if version < 2 else 1))
    for expected in (0, 2):
        answer = await client.produce("t", records, version=version, topic_id=topic_id)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, expected)
    data = await fetch(client, "t")
    assert values(data.records) == [b"one", b"two"] * 2


@pytest.mark.parametrize("version", range(19))
async def test_every_version_of_fetch_reads(client: Any, make_batch: MakeBatch, version: int) -> None:
    topic_id = await client.create_topic("t")
    await client.produce("t", make_batch(b"one", b"two"))
    data = await fetch(client, "t", version=version, topic_id=topic_id)
    assert (data.error_code, data.high_watermark, values(data.records)) == (ErrorCode.NONE, 2, [b"one", b"two"])
    magic = 0 if version < 2 else 1 if version < 4 else 2
    assert bytes(data.records)[16] == magic


@pytest.mark.parametrize("acks", [0, 1, -1])
async def test_acks_decide_whether_there_is_a_response(
    client: Any, make_batch: MakeBatch, make_produce: Callable[..., ProduceRequest], acks: int
) -> None:
    await client.create_topic("t")
    if acks:
        assert (await client.produce("t", make_batch(b"v"), acks=acks)).error_code == ErrorCode.NONE
    else:
        client.send(make_produce("t", make_batch(b"v"), acks=0), 9)
    assert values((await fetch(client, "t", max_wait_ms=1000)).records) == [b"v"]


async def test_an_error_with_acks_0_closes_the_connection(
    client: Any, make_batch: MakeBatch, make_produce: Callable[..., ProduceRequest]
) -> None:
    client.send(make_produce("missing", make_batch(b"v"), acks=0), 9)
    assert await client.is_closed_by_broker()


# -- errors of Produce ------------------------------------------------------------------------------------------------


async def test_produce_has_an_error_for_each_partition(client: Any, make_batch: MakeBatch) -> None:
    topic_id = await client.create_topic("t")
    good = make_batch(b"v")
    corrupt = bytearray(good)
    corrupt[-1] ^= 1
    two = good + good
    cases = [
        (await client.produce("missing", good), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (await client.produce("t", good, partition=7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (await client.produce("t", good, version=13, topic_id=Uuid(b"x" * 16)), ErrorCode.UNKNOWN_TOPIC_ID),
        (await client.produce("t", good, version=13, topic_id=topic_id), ErrorCode.NONE),
        (await client.produce("t", bytes(corrupt)), ErrorCode.CORRUPT_MESSAGE),
        (await client.produce("t", two), ErrorCode.INVALID_RECORD),
        (await client.produce("t", b""), ErrorCode.INVALID_RECORD),
        (await client.produce("t", bytes(down_convert(good, 1))), ErrorCode.INVALID_RECORD),
        (await client.produce("t", make_batch(b"x" * 2_000_000)), ErrorCode.MESSAGE_TOO_LARGE),
        (await client.produce("t", good, acks=2), ErrorCode.INVALID_REQUIRED_ACKS),
    ]
    assert [ErrorCode(answer.error_code).name for answer, _ in cases] == [expected.name for _, expected in cases]
    assert (await fetch(client, "t")).high_watermark == 1


def _entry(length: int, size: int, magic: int = 0) -> bytes:
    """Return so many bytes, which begin as an entry of this size and magic."""
    data = bytearray(length)
    data[8:12] = struct.pack(">i", size)
    if length > 16:
        data[16] = magic
    return bytes(data)


@pytest.mark.parametrize("version", [0, 2, 3, 7, 9])
async def test_produce_of_incomplete_records_fails_as_in_kafka(client: Any, version: int) -> None:
    """Versions before 3 append nothing of an incomplete entry, without an error. Observed with Kafka 3.9."""
    await client.create_topic("t")
    nothing = ErrorCode.NONE if version < 3 else ErrorCode.INVALID_RECORD
    too_small = "Record size 13 is less than the minimum record overhead (14)"
    cases = [
        (b"", nothing, None),
        (bytes(11), nothing, None),
        (_entry(16, 14), nothing, None),
        (_entry(17, 100, magic=1), nothing, None),
        (_entry(61, 100, magic=2), nothing, None),
        (_entry(12, 13), ErrorCode.CORRUPT_MESSAGE, too_small),
        (_entry(70, 13, magic=1), ErrorCode.CORRUPT_MESSAGE, too_small),
        (_entry(17, 100, magic=3), ErrorCode.CORRUPT_MESSAGE, "Invalid magic found in record: 3"),
        (_entry(70, 14, magic=255), ErrorCode.CORRUPT_MESSAGE, "Invalid magic found in record: -1"),
    ]
    for records, error, message in cases:
        answer = await client.produce("t", records, version=version)
        expected = message if version >= 8 else None
        assert (answer.error_code, answer.base_offset, answer.error_message) == (error, -1, expected), records


async def test_min_insync_replicas_above_the_replication_factor_is_capped(client: Any, make_batch: MakeBatch) -> None:
    """As in Kafka, which serves one replica under `min.insync.replicas=2`."""
    await client.create_topic("t", min_insync_replicas="2")
    assert (await client.produce("t", make_batch(b"v"))).error_code == ErrorCode.NONE


async def test_clients_do_not_write_to_internal_topics(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("__consumer_offsets")
    answer = await client.produce("__consumer_offsets", make_batch(b"v"))
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_log_append_time_is_returned_and_stored(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t", message_timestamp_type="LogAppendTime")
    answer = await client.produce("t", make_batch(b"v", timestamp=5))
    assert answer.log_append_time_ms > 1_000_000
    header = read_header((await fetch(client, "t")).records)
    assert header.max_timestamp == answer.log_append_time_ms


async def test_a_duplicate_batch_gets_the_offset_of_the_first_one(client: Any) -> None:
    await client.create_topic("t")
    identity = await client.ask(InitProducerIdRequest(None, 0), 4)
    other = await client.ask(InitProducerIdRequest(None, 0), 4)
    assert (identity.error_code, identity.producer_epoch, other.producer_id) == (0, 0, identity.producer_id + 1)

    def numbered(sequence: int) -> bytes:
        builder = BatchBuilder(producer_id=identity.producer_id, producer_epoch=0, base_sequence=sequence)
        builder.append(1_700_000_000_000, None, b"v")
        return bytes(builder.build())

    answers = [await client.produce("t", numbered(sequence)) for sequence in (0, 1, 0, 5)]
    assert [(answer.error_code, answer.base_offset) for answer in answers] == [
        (ErrorCode.NONE, 0),
        (ErrorCode.NONE, 1),
        (ErrorCode.NONE, 0),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1),
    ]


# -- waits, limits, errors --------------------------------------------------------------------------------------------


async def test_a_fetch_waits_for_min_bytes(node: Node, connect: Any, make_batch: MakeBatch) -> None:
    reader, writer = await connect(node), await connect(node)
    await writer.create_topic("t", partitions=2)
    one = make_batch(b"x" * 100)
    request = fetch_request("t", min_bytes=2 * len(one), max_wait_ms=30_000)
    request.topics[0].partitions.append(FetchRequest.FetchPartition(1, -1, 0, partition_max_bytes=1000))
    waiting = asyncio.create_task(reader.ask(request, 11))
    await writer.produce("t", one)
    assert not waiting.done()
    await writer.produce("t", one, partition=1)
    response = await waiting
    assert [len(data.records) for data in response.responses[0].partitions] == [len(one), len(one)]


async def test_a_fetch_below_min_bytes_waits_for_the_same_partition(
    node: Node, connect: Any, make_batch: MakeBatch
) -> None:
    reader, writer = await connect(node), await connect(node)
    await writer.create_topic("t", partitions=2)
    one = make_batch(b"x" * 100)
    await writer.produce("t", one)
    waiting = asyncio.create_task(
        reader.ask(fetch_request("t", min_bytes=2 * len(one), max_wait_ms=30_000, session_epoch=0), 11)
    )
    async with asyncio.timeout(10):
        while not len(node.broker.purgatory):
            await asyncio.sleep(0)
    await writer.produce("t", one)
    response = await waiting
    assert len(response.responses[0].partitions[0].records) == 2 * len(one)


async def test_an_append_to_any_partition_completes_the_fetch_of_a_session(
    node: Node, connect: Any, make_batch: MakeBatch
) -> None:
    reader, writer = await connect(node), await connect(node)
    await writer.create_topic("t", partitions=3)
    request = fetch_request("t", session_epoch=0)
    for partition in (1, 2):
        request.topics[0].partitions.append(FetchRequest.FetchPartition(partition, partition_max_bytes=1000))
    session = (await reader.ask(request, 11)).session_id
    one = make_batch(b"v")
    moved: list[FetchRequest.FetchTopic] = []
    for number, partition in enumerate((2, 0, 1)):
        waiting = asyncio.create_task(
            reader.ask(
                FetchRequest(
                    max_wait_ms=30_000, min_bytes=1, session_id=session, session_epoch=1 + number, topics=moved
                ),
                11,
            )
        )
        async with asyncio.timeout(10):
            while not len(node.broker.purgatory):
                await asyncio.sleep(0)
        await writer.produce("t", one, partition=partition)
        assert sizes(await waiting)[partition] == len(one)
        moved = fetch_request("t", 1, partition=partition).topics


async def test_a_fetch_without_data_completes_after_max_wait_ms(client: Any) -> None:
    await client.create_topic("t")
    data = await fetch(client, "t", max_wait_ms=20)
    assert (data.error_code, data.high_watermark, bytes(data.records)) == (ErrorCode.NONE, 0, b"")


async def test_the_first_batch_comes_whole_even_above_every_limit(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t", partitions=2)
    large = make_batch(b"x" * 5000)
    for partition in (0, 1):
        for _ in range(2):
            await client.produce("t", large, partition=partition)
    request = fetch_request("t", partition_max_bytes=10)
    request.max_bytes = 20
    request.topics[0].partitions.append(FetchRequest.FetchPartition(1, -1, 0, partition_max_bytes=10))
    response = await client.ask(request, 11)
    assert [len(data.records) for data in response.responses[0].partitions] == [len(large), 0]


async def test_partitions_share_max_bytes_in_order(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t", partitions=3)
    one = make_batch(b"x" * 1000)
    for partition in range(3):
        await client.produce("t", one, partition=partition)
    request = fetch_request("t")
    request.max_bytes = 2 * len(one)
    for partition in (1, 2):
        request.topics[0].partitions.append(FetchRequest.FetchPartition(partition, partition_max_bytes=10_000))
    response = await client.ask(request, 11)
    assert [len(data.records) for data in response.responses[0].partitions] == [len(one), len(one), 0]


async def test_fetch_has_an_error_for_each_partition(client: Any, make_batch: MakeBatch) -> None:
    topic_id = await client.create_topic("t")
    await client.produce("t", make_batch(b"v"))
    cases = [
        (await fetch(client, "missing"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (await fetch(client, "t", partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (await fetch(client, "", version=13, topic_id=Uuid(b"x" * 16)), ErrorCode.UNKNOWN_TOPIC_ID),
        (await fetch(client, "", version=13, topic_id=topic_id, partition=9), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (await fetch(client, "t", offset=2), ErrorCode.OFFSET_OUT_OF_RANGE),
        (await fetch(client, "t", offset=-1), ErrorCode.OFFSET_OUT_OF_RANGE),
        (await fetch(client, "t", current_leader_epoch=7), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (await fetch(client, "t", offset=1), ErrorCode.NONE),
    ]
    assert [ErrorCode(data.error_code).name for data, _ in cases] == [expected.name for _, expected in cases]


async def test_read_committed_without_aborted_transactions_gets_an_empty_list(
    client: Any, make_batch: MakeBatch
) -> None:
    await client.create_topic("t")
    await client.produce("t", make_batch(b"v"))
    uncommitted = await fetch(client, "t", isolation_level=0)
    committed = await fetch(client, "t", isolation_level=1)
    assert (uncommitted.aborted_transactions, committed.aborted_transactions) == (None, [])
    assert committed.last_stable_offset == 1


async def test_many_batches_come_in_order_across_segments(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t", segment_bytes="1048576")
    for number in range(40):
        await client.produce("t", make_batch(b"%d" % number + b"x" * 99_000))
    found: list[bytes] = []
    while len(found) < 40:
        data = await fetch(client, "t", offset=len(found), partition_max_bytes=300_000)
        for header in iterate(data.records, allow_partial=True):
            record = next(iter(read_any(data.records[header.position :], allow_partial=True)))
            found.append(bytes(record.value or b"").rstrip(b"x"))
    assert found == [b"%d" % number for number in range(40)]


async def test_deleting_the_topic_ends_a_wait_with_an_error(node: Node, connect: Any) -> None:
    reader, other = await connect(node), await connect(node)
    await other.create_topic("t")
    waiting = asyncio.create_task(reader.ask(fetch_request("t", max_wait_ms=30_000), 11))
    async with asyncio.timeout(10):
        while not len(node.broker.purgatory):
            await asyncio.sleep(0)
    await node.reset()
    response = await waiting
    assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- sessions ---------------------------------------------------------------------------------------------------------


def sizes(response: FetchResponse) -> dict[int, int]:
    """Return the number of bytes of each partition in a response."""
    return {data.partition_index: len(data.records or b"") for topic in response.responses for data in topic.partitions}


async def test_a_response_in_a_session_has_only_changed_partitions(client: Any, make_batch: MakeBatch) -> None:
    topic_id = await client.create_topic("t", partitions=2)
    one = make_batch(b"v")
    full = fetch_request("", version=13, topic_id=topic_id)
    full.topics[0].partitions.append(FetchRequest.FetchPartition(1, partition_max_bytes=1000))
    full.session_epoch = 0
    response = await client.ask(full, 13)
    session = response.session_id
    assert (response.error_code, session > 0, sizes(response)) == (0, True, {0: 0, 1: 0})

    empty = await client.ask(FetchRequest(max_wait_ms=0, session_id=session, session_epoch=1), 13)
    assert (empty.error_code, empty.session_id, sizes(empty)) == (0, session, {})

    await client.produce("t", one, partition=1)
    changed = await client.ask(FetchRequest(max_wait_ms=0, session_id=session, session_epoch=2), 13)
    assert sizes(changed) == {1: len(one)}

    moved = fetch_request("", 1, version=13, topic_id=topic_id, partition=1)
    moved.session_id, moved.session_epoch = session, 3
    moved.forgotten_topics_data = [FetchRequest.ForgottenTopic("", topic_id, [0])]
    assert sizes(await client.ask(moved, 13)) == {}
    await client.produce("t", one, partition=0)
    await client.produce("t", one, partition=1)
    last = await client.ask(FetchRequest(max_wait_ms=0, session_id=session, session_epoch=4), 13)
    assert sizes(last) == {1: len(one)}


async def test_the_high_watermark_is_sent_again_after_a_diverging_epoch(client: Any, make_batch: MakeBatch) -> None:
    """A follower takes only the end offset from a response with a diverging epoch."""
    topic_id = await client.create_topic("t")
    await client.produce("t", make_batch(b"v"))
    session, answers = 0, []
    for epoch, offset in enumerate((5, 5, 1, 1)):
        request = fetch_request("", offset, version=13, topic_id=topic_id, session_id=session, session_epoch=epoch)
        request.topics[0].partitions[0].last_fetched_epoch = 0
        response = await client.ask(request, 13)
        session = response.session_id
        answers.append([(d.diverging_epoch.epoch, d.high_watermark) for t in response.responses for d in t.partitions])
    assert answers == [[(0, 1)], [(0, 1)], [(-1, 1)], []]


async def test_a_wrong_session_or_epoch_is_an_error_of_the_whole_response(client: Any) -> None:
    await client.create_topic("t")
    unknown = await client.ask(FetchRequest(max_wait_ms=0, session_id=77, session_epoch=5), 11)
    assert unknown == FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    session = (await client.ask(fetch_request("t", session_epoch=0), 11)).session_id
    wrong = await client.ask(FetchRequest(max_wait_ms=0, session_id=session, session_epoch=9), 11)
    assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    by_id = await client.ask(FetchRequest(max_wait_ms=0, session_id=session, session_epoch=1), 13)
    assert by_id.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


async def test_a_final_epoch_closes_the_session(client: Any, node: Node) -> None:
    await client.create_topic("t")
    session = (await client.ask(fetch_request("t", session_epoch=0), 11)).session_id
    assert len(node.broker.fetch_sessions) == 1
    closing = fetch_request("t", session_id=session, session_epoch=-1)
    assert (await client.ask(closing, 11)).session_id == 0
    assert len(node.broker.fetch_sessions) == 0


# -- the disk ---------------------------------------------------------------------------------------------------------


class FailingDisk(RealDisk):
    """A disk on which the files below one directory take no more bytes once `full` is set."""

    def __init__(self, directory: Path) -> None:
        super().__init__(sync=False)
        self.full = False
        self._directory = f"{directory}/"
        self._descriptors: set[int] = set()

    def open(self, path: str, flags: int, /) -> int:
        descriptor = super().open(path, flags)
        if path.startswith(self._directory):
            self._descriptors.add(descriptor)
        return descriptor

    def write(self, fd: int, data: bytes | bytearray | memoryview, /) -> int:  # type: ignore[override]
        if self.full and fd in self._descriptors:
            raise OSError(28, "No space left on device")
        return os.write(fd, data)


async def test_a_failing_disk_takes_its_directory_offline_and_no_other(
    start_node: Any, connect: Any, make_batch: MakeBatch, tmp_path: Path
) -> None:
    disk = FailingDisk(tmp_path / "two")
    client = await connect(await start_node(disk=disk, log_dirs=f"{tmp_path}/one,{tmp_path}/two"))
    await client.create_topic("t", partitions=4)
    failing = sorted(int(path.name[2:]) for path in (tmp_path / "two").glob("t-*"))
    assert len(failing) == 2
    for index in range(4):
        await client.produce("t", make_batch(b"before"), partition=index)
    disk.full = True
    answer = await client.produce("t", make_batch(b"v"), partition=failing[0])
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    disk.full = False
    for index in range(4):
        error = ErrorCode.KAFKA_STORAGE_ERROR if index in failing else ErrorCode.NONE
        assert (await client.produce("t", make_batch(b"v"), partition=index)).error_code == error
        assert (await fetch(client, "t", partition=index)).error_code == error


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_acknowledged_records_survive_a_restart(
    start_node: Any, connect: Any, make_batch: MakeBatch, end: str
) -> None:
    node = await start_node()
    client = await connect(node)
    topic_id = await client.create_topic("t", retention_ms="12345678")
    for number in range(20):
        await client.produce("t", make_batch(b"%d" % number))
    await getattr(node, end)()
    again = await start_node()
    client = await connect(again)
    data = await fetch(client, "t", version=13, topic_id=topic_id)
    assert values(data.records) == [b"%d" % number for number in range(20)]
    assert again.broker.partitions.get("t", 0).log.config.retention_ms == 12345678
    assert (await client.produce("t", make_batch(b"on"))).base_offset == 20


async def test_a_response_of_300_batches_arrives_whole(client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t")
    one = make_batch(b"x" * 1000)
    for _ in range(300):
        await client.produce("t", one)
    client.send(fetch_request("t"), 11)
    frame = await client.receive_frame()
    assert struct.unpack_from(">i", frame, 0)[0] > 0
    assert len(frame) > 300 * 1000
