"""The reasons for which a Fetch with fewer than `min_bytes` completes before `max_wait_ms`.

Follows the cases of Kafka's DelayedFetch.tryComplete. Owns those that compare offsets with the log's segments: they
matter only to a Fetch with `min_bytes` above 1, or of versions 0-2, because any record completes the others. Leaves
errors, diverging epochs and preferred replicas, which complete a Fetch too, to `fetch_read`.
"""

from __future__ import annotations

from odradek_broker.replication.core.fetch_session import FetchedPartition, PartitionKey
from odradek_broker.replication.partition import Partition


class EarlyCompletion:
    """The partitions that one attempt of a Fetch has read, and whether they complete the Fetch."""

    __slots__ = ("_first_segments", "_min_bytes", "_reads")

    def __init__(self, min_bytes: int) -> None:
        self._min_bytes = min_bytes
        self._first_segments: dict[PartitionKey, int] = {}
        """The base offset of the segment that had the fetch offset at the first attempt. If that offset was the log
        end offset and the next append rolls a segment there, the Fetch completes, as in Kafka."""
        self._reads: list[tuple[FetchedPartition, Partition, int]] = []

    def begin_attempt(self) -> None:
        self._reads.clear()

    def add_read(self, wanted: FetchedPartition, partition: Partition, limit: int) -> None:
        """Add a partition that was read up to the offset `limit`, without an error."""
        key = (wanted.topic, wanted.index)
        if key not in self._first_segments:
            self._first_segments[key] = partition.log.segment_base_offset(wanted.fetch_offset)
        self._reads.append((wanted, partition, limit))

    def completes_fetch(self) -> bool:
        """Return whether the Fetch completes in one of Kafka's cases. Raises STORAGE_ERRORS.

        The fetch offset of a partition is above its limit; or it is in an older segment than the limit; or the
        partitions have `min_bytes` together, with at most `partition_max_bytes` of each, even if they do not fit into
        this response."""
        available = 0
        for wanted, partition, limit in self._reads:
            offset = wanted.fetch_offset
            if offset == limit:
                continue
            log = partition.log
            if offset > limit or self._first_segments[wanted.topic, wanted.index] < log.segment_base_offset(limit):
                return True
            available += min(log.available_bytes(offset, limit), wanted.max_bytes)
        return available >= self._min_bytes
