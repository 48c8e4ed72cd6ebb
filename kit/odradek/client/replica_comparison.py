"""Compare the replicas of a partition: fetch each broker's own copy and find the first offset where two copies differ.

Replicas must not differ below the high watermark. The comparison fetches one range of offsets after the other from all
brokers and compares batches (offsets, leader epoch, checksum of the bytes). It compares records only in a range that
differs, to find the first offset. Followers serve consumers from Fetch version 11 on (KIP-392).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from odradek.client.client import Client
from odradek.client.cluster_state import PartitionInfo
from odradek.exceptions import ClientError, KafkaError
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.records import batch
from odradek_wire.records.crc import crc32c
from odradek_wire.records.record import Record
from odradek_wire.records.record_codec import read_records
from odradek_wire.records.record_errors import CorruptRecordError
from odradek_wire.uuid import Uuid

_FETCH_BYTES_MAX = 4 * 1024 * 1024
_WAIT_MS = 100
_CATCH_UP_S = 10.0
_MAGIC_AT = 16
"""The first byte of a batch that the checksum covers; offsets and leader epoch, before it, are compared as numbers."""

BatchSummary = tuple[int, int, int, int]
"""A batch: base offset, next offset, leader epoch, checksum."""


@dataclass(frozen=True)
class ReplicaComparison:
    """The result of comparing the replicas of one partition from `start` to `end` (exclusive).

    `differs_at` is the first offset where two replicas differ. `brokers` has their brokers: first the leader, or the
    first running replica if the leader does not run, then the one that differs from it. `failure` is the reason why a
    replica could not be compared to the end.
    """

    partition: PartitionInfo
    start: int
    end: int
    differs_at: int | None = None
    brokers: tuple[int, ...] = ()
    failure: str | None = None

    @property
    def same(self) -> bool:
        return self.differs_at is None and self.failure is None


class _Replica:
    """One broker's replica, and the batches of its last fetch."""

    def __init__(self, client: Client, broker: int, partition: PartitionInfo, topic_id: Uuid) -> None:
        self.broker = broker
        self._client = client
        self._partition = partition
        self._topic_id = topic_id
        self.high_watermark = 0
        self.data = memoryview(b"")
        self.batches: list[batch.RecordBatchHeader] = []

    def fetch(self, offset: int) -> None:
        """Fetch whole batches, from the one with `offset` on. Raises ClientError."""
        partition = self._partition
        wanted = FetchRequest.FetchPartition(partition.index, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES_MAX)
        topic = FetchRequest.FetchTopic(partition.topic, self._topic_id, [wanted])
        request = FetchRequest(max_wait_ms=_WAIT_MS, min_bytes=1, max_bytes=_FETCH_BYTES_MAX, topics=[topic])
        response = self._client.call_broker(self.broker, request, FetchResponse)
        subject = f"{partition} on broker {self.broker}"
        if response.error_code != ErrorCode.NONE:
            raise KafkaError(response.error_code, subject)
        (result,) = response.responses[0].partitions
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(result.error_code, subject)
        self.high_watermark = result.high_watermark
        assert result.records is None or isinstance(result.records, memoryview)
        self.data = memoryview(b"") if result.records is None else result.records
        try:
            self.batches = list(batch.iterate(self.data, allow_partial=True))
        except CorruptRecordError as error:
            raise ClientError(f"{subject}: {error}") from error

    def fetch_until_batch_or_end(self, offset: int, end: int) -> None:
        """Fetch until a batch comes or the high watermark reaches `end`: a follower's is behind the leader's.

        Raises ClientError after 10 s.
        """
        deadline = time.monotonic() + _CATCH_UP_S
        while True:
            self.fetch(offset)
            if self.batches or self.high_watermark >= end:
                return
            if time.monotonic() > deadline:
                raise ClientError(
                    f"{self._partition} on broker {self.broker}: high watermark {self.high_watermark} did not reach the"
                    f" leader's {end} within {_CATCH_UP_S:g} s"
                )

    def covered_end(self, end: int) -> int:
        """Return the offset up to which the fetched batches reach; without a batch there is no record before `end`."""
        return min(self.batches[-1].next_offset, end) if self.batches else end

    def summaries(self, end: int) -> list[BatchSummary]:
        """Return the batches that end at `end` or before it; the others belong to the next range."""
        return [
            (header.base_offset, header.next_offset, header.partition_leader_epoch, self._checksum(header))
            for header in self.batches
            if header.next_offset <= end
        ]

    def records(self, start: int, end: int) -> dict[int, tuple[int, Record | int]]:
        """Return leader epoch and record by offset, from `start` to `end`; for a corrupt batch its checksum."""
        found: dict[int, tuple[int, Record | int]] = {}
        for header in self.batches:
            epoch = header.partition_leader_epoch
            try:
                batch.check_crc(self.data, header)
                for record in read_records(self.data, header):
                    if start <= record.offset < end:
                        found[record.offset] = epoch, record
            except CorruptRecordError:
                if start <= header.base_offset < end:
                    found[header.base_offset] = epoch, self._checksum(header)
        return found

    def _checksum(self, header: batch.RecordBatchHeader) -> int:
        return crc32c(self.data[header.position + _MAGIC_AT : header.end])


def compare(
    client: Client,
    partition: PartitionInfo,
    topic_id: Uuid,
    bounds: tuple[int, int],
    *,
    compacted: bool,
    running: Collection[int],
) -> ReplicaComparison:
    """Compare the replicas of a partition on the `running` brokers.

    `bounds` are the leader's log start offset and high watermark. In a `compacted` topic only the offsets that two
    replicas both have must be equal, because each broker cleans its own log.
    """
    start, end = bounds
    down = [broker for broker in partition.replicas if broker not in running]
    leader_first = sorted(partition.replicas, key=lambda broker: broker != partition.leader)
    replicas = [_Replica(client, broker, partition, topic_id) for broker in leader_first if broker not in down]
    failure = f"broker {down[0]} is not running" if down else None
    position = start
    try:
        while position < end and len(replicas) > 1:
            for replica in replicas:
                replica.fetch_until_batch_or_end(position, end)
            until = min(replica.covered_end(end) for replica in replicas)
            found = _first_difference(replicas, position, until, compacted=compacted)
            if found is not None:
                differs_at, other = found
                return ReplicaComparison(partition, start, end, differs_at, (replicas[0].broker, other.broker), failure)
            position = until
    except ClientError as error:
        return ReplicaComparison(partition, start, position, failure=str(error))
    return ReplicaComparison(partition, start, end, failure=failure)


def _first_difference(
    replicas: Sequence[_Replica], start: int, end: int, *, compacted: bool
) -> tuple[int, _Replica] | None:
    """Return the first offset where a replica differs from the leader's, and that replica."""
    leader = replicas[0]
    expected = leader.summaries(end)
    found = [
        (offset, replica)
        for replica in replicas[1:]
        if replica.summaries(end) != expected
        and (offset := _differing_offset(leader, replica, start, end, compacted=compacted)) is not None
    ]
    return min(found, key=lambda each: each[0]) if found else None


def _differing_offset(left: _Replica, right: _Replica, start: int, end: int, *, compacted: bool) -> int | None:
    ours, theirs = left.records(start, end), right.records(start, end)
    offsets = ours.keys() & theirs.keys() if compacted else ours.keys() | theirs.keys()
    for offset in sorted(offsets):
        if ours.get(offset) != theirs.get(offset):
            return offset
    if compacted:
        return None
    # The records are equal, but their batches or producers differ.
    pairs = zip(left.summaries(end), right.summaries(end), strict=False)
    return next((max(one[0], start) for one, other in pairs if one != other), start)
