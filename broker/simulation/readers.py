"""Consumers without a group, which read all partitions of a topic, and a client that sends ListOffsets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from odradek_wire.errors import ErrorCode
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek_wire.records.batch import iterate
from odradek_wire.records.record_codec import read_records
from simulation.checks import Checks
from simulation.client import Client, Connection, UnreachableError

FETCH_VERSION = 12
LIST_OFFSETS_VERSION = 6
LATEST = -1
MAX_WAIT_MS = 500
PARTITION_BYTES = 2_000
TRIES = 20
LEADER_CHANGED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


async def fetch(client: Client, checks: Checks, topic: str, partition: int, position: int) -> int | None:
    """Send one Fetch. Return the next position; None if the caller must look up the leader again.

    A client with a rack fetches from the follower that the leader names (KIP-392)."""
    topic_partition = (topic, partition)
    preferred = client.preferred.get(topic_partition)
    try:
        connection = await (
            client.leader(*topic_partition) if preferred is None else client.connection(f"broker-{preferred}")
        )
        wanted = FetchRequest.FetchPartition(
            partition, client.leader_epoch(*topic_partition), position, partition_max_bytes=PARTITION_BYTES
        )
        request = FetchRequest(max_wait_ms=MAX_WAIT_MS, min_bytes=1, max_bytes=1 << 20)
        request.topics = [FetchRequest.FetchTopic(topic, partitions=[wanted])]
        request.rack_id = client.rack
        response = await connection.ask(request, FETCH_VERSION, FetchResponse)
    except UnreachableError:
        client.forget_leader(*topic_partition)
        return None
    data = response.responses[0].partitions[0]
    if data.preferred_read_replica >= 0:
        client.preferred[topic_partition] = data.preferred_read_replica
        return position
    return check_partition(client, checks, topic_partition, position, data)


def check_partition(
    client: Client, checks: Checks, topic_partition: tuple[str, int], position: int, data: FetchResponse.PartitionData
) -> int | None:
    """Check a partition of a Fetch response. Return the next position; None if the leader must be looked up again."""
    error = ErrorCode(data.error_code)
    if error is ErrorCode.OFFSET_OUT_OF_RANGE:
        if topic_partition in client.preferred:  # a follower may lag behind
            client.forget_leader(*topic_partition)
            return None
        return checks.out_of_range(topic_partition, position)
    if error is not ErrorCode.NONE:
        if error in LEADER_CHANGED:
            client.forget_leader(*topic_partition)
        return None
    records = data.records or b""
    assert isinstance(records, bytes | memoryview)
    headers = list(iterate(records, allow_partial=True))
    found = [(record.offset, record.value or b"") for header in headers for record in read_records(records, header)]
    end = headers[-1].next_offset if headers else position
    return checks.read(topic_partition, position, found, end, data.high_watermark)


class Reader:
    """Reads all partitions of a topic concurrently from the beginning."""

    def __init__(self, client: Client, checks: Checks, topic: str, partitions: int) -> None:
        self._client = client
        self._checks = checks
        self._topic = topic
        self.positions = [0] * partitions

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for partition in range(len(self.positions)):
                group.create_task(self._read(partition))

    async def _read(self, partition: int) -> None:
        while True:
            position = self.positions[partition]
            reached = await fetch(self._client, self._checks, self._topic, partition, position)
            if reached is None:
                await asyncio.sleep(self._client.chance.uniform(0.1, 0.4))
            else:
                self.positions[partition] = reached


class SessionReader:
    """Reads all partitions of a topic as Kafka's consumer does, with one incremental fetch session per leader
    (KIP-227)."""

    def __init__(self, client: Client, checks: Checks, topic: str, partitions: int, brokers: Iterable[int]) -> None:
        self._client = client
        self._checks = checks
        self._topic = topic
        self._brokers = tuple(brokers)
        self.positions = [0] * partitions

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for partition in range(len(self.positions)):
                group.create_task(self._find_leader(partition))
            for broker in self._brokers:
                group.create_task(self._read_from(broker))

    async def _find_leader(self, partition: int) -> None:
        while True:
            with suppress(UnreachableError):
                await self._client.leader(self._topic, partition)
            await asyncio.sleep(self._client.chance.uniform(0.1, 0.4))

    async def _read_from(self, broker: int) -> None:
        while True:
            try:
                await self._session(await self._client.connection(f"broker-{broker}"), broker)
            except UnreachableError:
                for partition in self._led_by(broker):
                    self._client.forget_leader(self._topic, partition)
            await asyncio.sleep(self._client.chance.uniform(0.1, 0.4))

    async def _session(self, connection: Connection, broker: int) -> None:
        """Fetch in one session until the broker ends it. Raises UnreachableError."""
        session_id, epoch = 0, 0
        sent: dict[int, tuple[int, int]] = {}
        while True:
            wanted = {
                at: (self._client.leader_epoch(self._topic, at), self.positions[at]) for at in self._led_by(broker)
            }
            if not wanted and not sent:
                await asyncio.sleep(0.1)
                continue
            request = FetchRequest(max_wait_ms=MAX_WAIT_MS, min_bytes=1, max_bytes=1 << 20)
            request.session_id, request.session_epoch = session_id, epoch
            news = [
                FetchRequest.FetchPartition(at, leader_epoch, position, partition_max_bytes=PARTITION_BYTES)
                for at, (leader_epoch, position) in wanted.items()
                if sent.get(at) != (leader_epoch, position)
            ]
            request.topics = [FetchRequest.FetchTopic(self._topic, partitions=news)] if news else []
            gone = sorted(sent.keys() - wanted.keys())
            request.forgotten_topics_data = [FetchRequest.ForgottenTopic(self._topic, partitions=gone)] if gone else []
            response = await connection.ask(request, FETCH_VERSION, FetchResponse)
            if response.error_code:
                error = ErrorCode(response.error_code).name
                self._client.note(f"the fetch session with broker {broker} ends: {error}")
                return
            sent, session_id, epoch = wanted, response.session_id, epoch + 1
            if not session_id:  # the broker's cache of sessions is full
                sent, epoch = {}, 0
            parts = [self._take(data, wanted) for topic in response.responses for data in topic.partitions]
            if not all(parts):
                await asyncio.sleep(self._client.chance.uniform(0.1, 0.4))

    def _led_by(self, broker: int) -> list[int]:
        return [at for at in range(len(self.positions)) if self._client.leader_id(self._topic, at) == broker]

    def _take(self, data: FetchResponse.PartitionData, wanted: dict[int, tuple[int, int]]) -> bool:
        """Record a partition of the response. Return False if it has an error."""
        at = data.partition_index
        reached = check_partition(self._client, self._checks, (self._topic, at), wanted[at][1], data)
        if reached is not None:
            self.positions[at] = max(self.positions[at], reached)
        return reached is not None


class LatestOffsetReader:
    """Sends ListOffsets for the latest offset of random partitions."""

    def __init__(self, client: Client, checks: Checks, topic: str, partitions: int) -> None:
        self._client = client
        self._checks = checks
        self._topic_partitions = [(topic, partition) for partition in range(partitions)]

    async def run(self) -> None:
        chance = self._client.chance
        while True:
            await asyncio.sleep(chance.uniform(0.05, 0.5))
            topic_partition = chance.choice(self._topic_partitions)
            # Ask a new leader immediately: it may know less than the old leader returned.
            for _ in range(TRIES):
                if await self._ask(topic_partition):
                    break
                await asyncio.sleep(chance.uniform(0.001, 0.01))

    async def _ask(self, topic_partition: tuple[str, int]) -> bool:
        client = self._client
        try:
            connection = await client.leader(*topic_partition)
            epoch = client.leader_epoch(*topic_partition)
            floor = self._checks.latest_seen(topic_partition, epoch)
            wanted = ListOffsetsRequest.ListOffsetsPartition(topic_partition[1], epoch, LATEST)
            request = ListOffsetsRequest(-1, 0, [ListOffsetsRequest.ListOffsetsTopic(topic_partition[0], [wanted])])
            response = await connection.ask(request, LIST_OFFSETS_VERSION, ListOffsetsResponse)
        except UnreachableError:
            client.forget_leader(*topic_partition)
            return False
        found = response.topics[0].partitions[0]
        if found.error_code:
            client.forget_leader(*topic_partition)
            return False
        self._checks.list_offsets_returned(topic_partition, floor, epoch, found.offset)
        return True
