"""The reasons for which a Fetch that found fewer than `min_bytes` completes before `max_wait_ms`.

Follows the cases of Kafka's DelayedFetch.tryComplete. Owns those that compare offsets with the log's segments: they
matter only to a Fetch with `min_bytes` above 1, or with a hard limit (versions 0-2), because any record completes the
others. Errors, diverging epochs and preferred replicas complete a Fetch too; the reader of the partition reports them
(`fetch_read`).
"""

from __future__ import annotations

from odradek_broker.replication.core.fetch_session import FetchedPartition, PartitionKey
from odradek_broker.replication.partition import Partition


class EarlyCompletion:
    """The partitions that one attempt of a Fetch has read, and whether they complete the Fetch."""

    __slots__ = ("_first_segments", "_min_bytes", "_read")

    def __init__(self, min_bytes: int) -> None:
        self._min_bytes = min_bytes
        self._first_segments: dict[PartitionKey, int] = {}
        """The base offset of the segment that held the fetch offset at the first attempt. If that offset was the log's
        end and the next append rolls a segment there, the Fetch completes, as in Kafka."""
        self._read: list[tuple[FetchedPartition, Partition, int]] = []

    def begin_attempt(self) -> None:
        self._read.clear()

    def add(self, wanted: FetchedPartition, partition: Partition, limit: int) -> None:
        """Add a partition that was read up to the offset `limit`, without an error."""
        key = (wanted.topic, wanted.index)
        if key not in self._first_segments:
            self._first_segments[key] = partition.log.segment_base_offset(wanted.fetch_offset)
        self._read.append((wanted, partition, limit))

    def is_due(self) -> bool:
        """Return whether waiting is pointless or there are enough bytes. Raises STORAGE_ERRORS.

        Kafka's cases: the fetch offset is above the reader's limit; it is on an older segment than that limit; or
        `min_bytes` can be read, up to `partition_max_bytes` of each partition, even if they do not fit into this
        response."""
        available = 0
        for wanted, partition, limit in self._read:
            offset = wanted.fetch_offset
            if offset == limit:
                continue
            log = partition.log
            if offset > limit or self._first_segments[wanted.topic, wanted.index] < log.segment_base_offset(limit):
                return True
            available += min(log.available_bytes(offset, limit), wanted.max_bytes)
        return available >= self._min_bytes
