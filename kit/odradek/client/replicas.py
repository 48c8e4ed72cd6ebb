"""Are the replicas of a partition the same? Each broker is asked for its own copy, and the copies are held together.

Below the high watermark replicas may not differ. They are read side by side, a range of offsets after the other, and
compared batch by batch (offsets, leader epoch, a checksum computed from what was sent). Only a range that differs is
looked at record by record, to name the first offset. Brokers give consumers their copy even where they follow (KIP-392,
Fetch from version 11 on).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from odradek.client.client import Client
from odradek.client.state import PartitionInfo
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
"""Offset and leader epoch, which stand before it in a batch, are compared as numbers."""

Entry = tuple[int, int, int, int]
"""A batch: first offset, the offset after it, leader epoch, checksum."""


@dataclass(frozen=True)
class Verdict:
    """What came of comparing one partition, from `start` to `end` (exclusive).

    `differs_at` is the first offset where the copies part, `brokers` those that part there: the one that the others
    are compared with, and one that is not like it. `trouble` says why a replica could not be compared to the end.
    """

    partition: PartitionInfo
    start: int
    end: int
    differs_at: int | None = None
    brokers: tuple[int, ...] = ()
    trouble: str | None = None

    @property
    def same(self) -> bool:
        return self.differs_at is None and self.trouble is None


class _Copy:
    """One broker's replica, as far as it was read."""

    def __init__(self, client: Client, broker: int, partition: PartitionInfo, topic_id: Uuid) -> None:
        self.broker = broker
        self._client = client
        self._partition = partition
        self._topic_id = topic_id
        self.high_watermark = 0
        self.data = memoryview(b"")
        self.batches: list[batch.RecordBatchHeader] = []

    def fetch(self, offset: int) -> None:
        """Whole batches from the one with `offset` on, as many as come."""
        partition = self._partition
        asked = FetchRequest.FetchPartition(partition.index, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES_MAX)
        topic = FetchRequest.FetchTopic(partition.topic, self._topic_id, [asked])
        request = FetchRequest(max_wait_ms=_WAIT_MS, min_bytes=1, max_bytes=_FETCH_BYTES_MAX, topics=[topic])
        answer = self._client.call_node(self.broker, request, FetchResponse)
        about = f"{partition} on broker {self.broker}"
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(answer.error_code, about)
        (result,) = answer.responses[0].partitions
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(result.error_code, about)
        self.high_watermark = result.high_watermark
        assert result.records is None or isinstance(result.records, memoryview)
        self.data = memoryview(b"") if result.records is None else result.records
        try:
            self.batches = list(batch.iterate(self.data, allow_partial=True))
        except CorruptRecordError as error:
            raise ClientError(f"{about}: {error}") from error

    def fetch_until_some(self, offset: int, end: int) -> None:
        """Wait for a follower that has not been told yet how far it may show what it has."""
        deadline = time.monotonic() + _CATCH_UP_S
        while True:
            self.fetch(offset)
            if self.batches or self.high_watermark >= end:
                return
            if time.monotonic() > deadline:
                raise ClientError(
                    f"{self._partition} on broker {self.broker} goes to {self.high_watermark}, the leader's to {end}"
                )

    def covers_to(self, end: int) -> int:
        """The offset up to which this copy is known now; nothing at all came: up to the end there is nothing."""
        return min(self.batches[-1].next_offset, end) if self.batches else end

    def entries(self, end: int) -> list[Entry]:
        """The batches that end at `end` or before; the rest is compared with the next range."""
        return [
            (header.base_offset, header.next_offset, header.partition_leader_epoch, self._checksum(header))
            for header in self.batches
            if header.next_offset <= end
        ]

    def records(self, start: int, end: int) -> dict[int, tuple[int, Record | int]]:
        """Offset → leader epoch and record from `start` to `end`. A batch that cannot be read counts by its bytes."""
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
) -> Verdict:
    """Compare the replicas of a partition on the brokers that are `running`.

    `bounds` are the leader's first offset and high watermark. Replicas of a `compacted` topic need not have the same
    records, since each broker cleans its own log: what two of them have must be the same.
    """
    start, end = bounds
    down = [broker for broker in partition.replicas if broker not in running]
    leader_first = sorted(partition.replicas, key=lambda broker: broker != partition.leader)
    copies = [_Copy(client, broker, partition, topic_id) for broker in leader_first if broker not in down]
    trouble = f"broker {down[0]} does not run" if down else None
    position = start
    try:
        while position < end and len(copies) > 1:
            for copy in copies:
                copy.fetch_until_some(position, end)
            until = min(copy.covers_to(end) for copy in copies)
            found = _first_difference(copies, position, until, compacted=compacted)
            if found is not None:
                differs_at, other = found
                return Verdict(partition, start, end, differs_at, (copies[0].broker, other.broker), trouble)
            position = until
    except ClientError as error:
        return Verdict(partition, start, position, trouble=str(error))
    return Verdict(partition, start, end, trouble=trouble)


def _first_difference(copies: Sequence[_Copy], start: int, end: int, *, compacted: bool) -> tuple[int, _Copy] | None:
    """The offset where a copy is first unlike the leader's, and which one that is."""
    leader = copies[0]
    entries = leader.entries(end)
    places = [
        (place, copy)
        for copy in copies[1:]
        if copy.entries(end) != entries
        and (place := _place_of_difference(leader, copy, start, end, compacted=compacted)) is not None
    ]
    return min(places, key=lambda found: found[0]) if places else None


def _place_of_difference(left: _Copy, right: _Copy, start: int, end: int, *, compacted: bool) -> int | None:
    ours, theirs = left.records(start, end), right.records(start, end)
    offsets = ours.keys() & theirs.keys() if compacted else ours.keys() | theirs.keys()
    for offset in sorted(offsets):
        if ours.get(offset) != theirs.get(offset):
            return offset
    if compacted:
        return None
    # The same records in other batches, or of another producer.
    pairs = zip(left.entries(end), right.entries(end), strict=False)
    return next((max(one[0], start) for one, other in pairs if one != other), start)
