"""Produce records to a topic and fetch them, through a `Client`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from odradek.client.client import Client
from odradek.client.cluster_state import NO_LEADER
from odradek.exceptions import ClientError, KafkaError
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.records import batch
from odradek_wire.records.builder import BatchBuilder
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import read_records
from odradek_wire.uuid import ZERO_UUID

EARLIEST = -2
LATEST = -1
_ALL_REPLICAS = -1
_BATCH_BYTES = 64 * 1024
_FETCH_BYTES_MAX = 8 * 1024 * 1024
_TIMEOUT_MS = 30_000
_MURMUR_SEED = 0x9747B28C


class ConsumerRecord(NamedTuple):
    """A record and its partition."""

    partition: int
    record: Record


class RecordProducer:
    """Collects records into a batch per partition and produces the batches with acks=all. Call `flush` at the end."""

    def __init__(self, client: Client, topic: str) -> None:
        found = client.topic(topic)
        self._client = client
        self._topic = topic
        self._topic_id = found.topic_id
        self._leaders = [partition.leader_id for partition in found.partitions]
        self._open: dict[int, BatchBuilder] = {}
        self._unkeyed = 0
        self.written = 0
        """The number of acknowledged records."""

    def write(self, record: Record, partition: int | None = None) -> None:
        """Add a record to the batch of its partition; send a batch that is full.

        The key decides the partition as in Kafka's clients. Records without a key go to the partitions in turn.

        Raises ClientError for a partition that does not exist, and KafkaError when the broker refuses a batch.
        """
        if partition is None:
            partition = self._partition(record.key)
        elif not 0 <= partition < len(self._leaders):
            raise ClientError(
                f"topic {self._topic!r} has no partition {partition}: the last one is {len(self._leaders) - 1}"
            )
        builder = self._open.setdefault(partition, BatchBuilder())
        builder.append(record.timestamp, record.key, record.value, record.headers)
        if builder.size_so_far >= _BATCH_BYTES:
            self._send(partition)

    def flush(self) -> None:
        """Send all batches. Raises KafkaError when the broker refuses one."""
        for partition in sorted(self._open):
            self._send(partition)

    def _partition(self, key: bytes | None) -> int:
        if key is not None:
            return (murmur2(key) & 0x7FFFFFFF) % len(self._leaders)
        self._unkeyed += 1
        return (self._unkeyed - 1) % len(self._leaders)

    def _send(self, partition: int) -> None:
        builder = self._open.pop(partition)
        data = ProduceRequest.PartitionProduceData(partition, bytes(builder.build()))
        topic = ProduceRequest.TopicProduceData(self._topic, self._topic_id, [data])
        leader = _checked_leader(self._topic, partition, self._leaders[partition])
        request = ProduceRequest(None, _ALL_REPLICAS, _TIMEOUT_MS, [topic])
        response = self._client.call_broker(leader, request, ProduceResponse)
        (result,) = response.responses[0].partition_responses
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(result.error_code, f"{self._topic}-{partition}", result.error_message)
        self.written += builder.count


def list_offsets(
    client: Client, topic: str, timestamp: int, partitions: Collection[int] | None = None
) -> dict[int, int]:
    """Return the offset of each partition, or of `partitions`, at `timestamp` (ms, or EARLIEST or LATEST).

    A partition without a record at or after `timestamp` has its end offset. Raises KafkaError.
    """
    found: dict[int, int] = {}
    for partition in client.topic(topic).partitions:
        index = partition.partition_index
        if partitions is not None and index not in partitions:
            continue
        wanted = ListOffsetsRequest.ListOffsetsPartition(index, timestamp=timestamp)
        request = ListOffsetsRequest(-1, topics=[ListOffsetsRequest.ListOffsetsTopic(topic, [wanted])])
        leader = _checked_leader(topic, index, partition.leader_id)
        (result,) = client.call_broker(leader, request, ListOffsetsResponse).topics[0].partitions
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(result.error_code, f"{topic}-{index}")
        found[index] = result.offset
    if timestamp >= 0 and -1 in found.values():
        ends = list_offsets(client, topic, LATEST, found)
        found = {partition: ends[partition] if offset == -1 else offset for partition, offset in found.items()}
    return found


def read(
    client: Client, topic: str, positions: dict[int, int], *, ends: dict[int, int] | None = None, wait_ms: int = 500
) -> Iterator[ConsumerRecord]:
    """Fetch records from `positions` (partition to offset), in the order of each partition.

    Stops when every partition has reached its offset in `ends` (exclusive); without `ends` it never stops. Raises
    KafkaError.
    """
    found = client.topic(topic)
    leaders = {partition.partition_index: partition.leader_id for partition in found.partitions}
    positions = dict(positions)
    for partition in positions:
        _checked_leader(topic, partition, leaders[partition])
    while True:
        if ends is not None:
            positions = {partition: offset for partition, offset in positions.items() if offset < ends[partition]}
            if not positions:
                return
        for node_id in sorted({leaders[partition] for partition in positions}):
            wanted = [
                FetchRequest.FetchPartition(partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES_MAX)
                for partition, offset in sorted(positions.items())
                if leaders[partition] == node_id
            ]
            request = FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=_FETCH_BYTES_MAX,
                topics=[FetchRequest.FetchTopic(topic, found.topic_id or ZERO_UUID, wanted)],
            )
            response = client.call_broker(node_id, request, FetchResponse)
            if response.error_code != ErrorCode.NONE:
                raise KafkaError(response.error_code, f"topic {topic!r}")
            for result in response.responses[0].partitions if response.responses else []:
                if result.error_code != ErrorCode.NONE:
                    raise KafkaError(result.error_code, f"{topic}-{result.partition_index}")
                start = positions[result.partition_index]
                for record, next_offset in _records(result, start):
                    positions[result.partition_index] = next_offset
                    if record is not None:
                        yield ConsumerRecord(result.partition_index, record)


def _checked_leader(topic: str, partition: int, leader: int) -> int:
    """Return the leader. Raises KafkaError for a partition without one."""
    if leader == NO_LEADER:
        reason = "the partition has no leader, because no in-sync replica is running"
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition}", reason)
    return leader


def _records(result: FetchResponse.PartitionData, start: int) -> Iterator[tuple[Record | None, int]]:
    """Yield the records from `start` on, each with the next offset, and None for the end of each batch."""
    data = result.records
    if data is None:
        return
    assert isinstance(data, memoryview)
    for header in batch.iterate(data, allow_partial=True):
        if not header.is_control:
            for record in read_records(data, header):
                if record.offset >= start:
                    yield record, record.offset + 1
        yield None, header.next_offset


def murmur2(data: bytes) -> int:
    """Return Kafka's hash of a key (32 bits, unsigned), which gives a key the same partition as Java's producer."""
    multiplier, mask = 0x5BD1E995, 0xFFFFFFFF
    length = len(data)
    value = (_MURMUR_SEED ^ length) & mask
    for at in range(0, length & ~3, 4):
        word = int.from_bytes(data[at : at + 4], "little") * multiplier & mask
        word ^= word >> 24
        value = value * multiplier & mask ^ word * multiplier & mask
    tail = data[length & ~3 :]
    if tail:
        value = (value ^ int.from_bytes(tail, "little")) * multiplier & mask
    value ^= value >> 13
    value = value * multiplier & mask
    return value ^ value >> 15
