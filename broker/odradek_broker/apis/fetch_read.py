"""Reading one partition for a Fetch.

Owns the limit of each reader (followers read to the log's end, consumers to the high watermark or the last stable
offset), recording the progress of a follower, the choice of a replica in the consumer's rack (KIP-392), diverging
epochs (KIP-595), and the conversion of batches for consumers of versions 0-3.
"""

from __future__ import annotations

from typing import TypeAlias

from odradek_broker.apis.context import Context
from odradek_broker.apis.early_completion import EarlyCompletion
from odradek_broker.apis.fetch_context import FetchContext
from odradek_broker.apis.fetch_refusal import (
    BEFORE_READING,
    FIRST_VERSION_WITH_FOLLOWERS,
    PartitionData,
    refusal,
    refused,
    why_not_hosted,
)
from odradek_broker.memory import ROOM_PER_CONVERTED_BYTE
from odradek_broker.replication.core.fetch_session import FetchedPartition, PartitionKey
from odradek_broker.replication.follower_fetches import preferred_replica
from odradek_broker.replication.partition import STORAGE_ERRORS, Partition
from odradek_log.log_errors import OffsetOutOfRangeError
from odradek_log.log_segment import FileSlice
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.records.conversion import down_convert
from odradek_wire.records.record_errors import CorruptRecordError, UnsupportedRecordsError

AbortedTransaction: TypeAlias = FetchResponse.AbortedTransaction

FIRST_VERSION_WITH_BATCHES = 4
READ_COMMITTED = 1


class PartitionReader:
    """Reads the partitions of one request, perhaps several times."""

    __slots__ = (
        "_context",
        "_converted_bytes",
        "_ctx",
        "_early",
        "_follower",
        "_not_readable_at_first",
        "_rack",
        "first",
        "read_committed",
        "urgent",
        "watched",
    )

    def __init__(
        self, ctx: Context, request: FetchRequest, context: FetchContext, early: EarlyCompletion | None
    ) -> None:
        self._ctx = ctx
        self._context = context
        self._follower = follower = context.follower
        self.read_committed = request.isolation_level == READ_COMMITTED and follower is None
        may_read_followers = ctx.api_version >= FIRST_VERSION_WITH_FOLLOWERS and follower is None
        self._rack = request.rack_id if may_read_followers else ""
        self._early = early
        self._not_readable_at_first: set[PartitionKey] | None = None
        """Partitions that the first attempt found unknown or forbidden to a consumer: they do not complete the Fetch,
        as in Kafka (KafkaApis.handleFetchRequest). None without such partitions: most Fetches have none."""
        self._converted_bytes = 0
        self.first = True
        """Whether this is the first attempt; only the first one records the progress of a follower."""
        self.urgent = False
        """Whether a partition that was read completes the Fetch."""
        self.watched: list[Partition] = []
        """The partitions whose changes may complete the Fetch."""

    def begin_again(self) -> None:
        """Forget what an earlier attempt has read."""
        self.watched = []
        self._converted_bytes = 0
        if self._early is not None:
            self._early.begin_attempt()

    def watch_idle(self, wanted: FetchedPartition, partition: Partition) -> None:
        """Watch a partition that has nothing new for a consumer, without reading it."""
        self.watched.append(partition)
        if self._early is not None:
            self._early.add(wanted, partition, wanted.fetch_offset)

    def read(self, wanted: FetchedPartition, room: int, min_one: bool) -> PartitionData:
        """Return the partition's part of the response. Errors complete the Fetch, except for those for which
        `_waits_in_spite_of` is true."""
        ctx = self._ctx
        partition = self._context.find(wanted.topic, wanted.index)  # type: ignore[arg-type]  # a name or an id
        if partition is None:
            return self._error(wanted, why_not_hosted(ctx, wanted))
        follower = self._follower
        error = refusal(ctx, partition, wanted, follower)
        if error:
            return self._error(wanted, error)
        if wanted.last_fetched_epoch >= 0:
            diverging = self._diverging(partition, wanted)
            if diverging is not None:
                return diverging
        stable = partition.last_stable_offset
        if follower is not None:
            limit = partition.log_end_offset
            if self.first and wanted.fetch_offset <= limit:
                follower.record_fetch(partition, wanted)
            if wanted.known_high_watermark < partition.high_watermark:
                self.urgent = True  # the follower serves consumers up to its high watermark
            if -1 < wanted.last_sent_log_start_offset < partition.log_start_offset:
                self.urgent = True  # DeleteRecords waits for the follower
        else:
            limit = stable if self.read_committed else partition.high_watermark
            if self._rack:
                preferred = preferred_replica(ctx.broker, partition, self._rack, wanted.fetch_offset)
                if preferred is not None:
                    return self._redirected(partition, wanted, preferred)
        high_watermark = partition.high_watermark
        max_bytes = wanted.max_bytes if wanted.max_bytes < room else room
        records: object = b""
        aborted: list[AbortedTransaction] | None = [] if self.read_committed else None
        if follower is not None and follower.should_throttle(partition):
            max_bytes, min_one = 0, False
        elif self._early is not None:
            self._early.add(wanted, partition, limit)
        elif wanted.fetch_offset > limit:
            self.urgent = True  # as after a truncation of the leader (Kafka's DelayedFetch)
        try:
            found = partition.log.read(wanted.fetch_offset, max_bytes, limit=limit, min_one=min_one)
            if found is not None:
                is_understood = ctx.api_version >= FIRST_VERSION_WITH_BATCHES
                if not (is_understood or partition.log.config.message_downconversion_enable):
                    return self._error(wanted, ErrorCode.UNSUPPORTED_VERSION)
                records = found if is_understood else self._converted(found, wanted.fetch_offset)
                if aborted is not None:
                    aborted = _aborted(partition, wanted.fetch_offset, found)
        except OffsetOutOfRangeError:
            return self._error(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
        except UnsupportedRecordsError:
            return self._error(wanted, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        except CorruptRecordError:
            return self._error(wanted, ErrorCode.CORRUPT_MESSAGE)
        except STORAGE_ERRORS:
            partition.take_offline()
            return self._error(wanted, ErrorCode.KAFKA_STORAGE_ERROR)
        self.watched.append(partition)
        return PartitionData(
            partition_index=wanted.index,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=aborted,
            records=records,  # type: ignore[arg-type]  # bytes, a slice of a file, or a converted message set
        )

    def _redirected(self, partition: Partition, wanted: FetchedPartition, replica: int) -> PartitionData:
        """Return the part of the response that sends the consumer to a replica in its rack (KIP-392)."""
        self.urgent = True
        return PartitionData(
            partition_index=wanted.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=replica,
            records=b"",
        )

    def _converted(self, found: FileSlice, fetch_offset: int) -> bytes:
        """Return batches as a message set of magic 0 (versions 0 and 1) or 1 (versions 2 and 3).

        Return no records while memory is exhausted: the consumer fetches again."""
        if not self._ctx.connection.has_room(self._converted_bytes + ROOM_PER_CONVERTED_BYTE * len(found)):
            return b""
        converted = bytes(
            down_convert(found.tobytes(), 0 if self._ctx.api_version < 2 else 1, first_offset=fetch_offset)
        )
        self._converted_bytes += len(converted)
        return converted

    def _diverging(self, partition: Partition, wanted: FetchedPartition) -> PartitionData | None:
        """Return the part of the response for a reader with a diverging log (KIP-595); None for any other reader."""
        epoch, end_offset = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch < 0:
            return self._error(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch >= wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return None
        self.urgent = True
        return PartitionData(
            partition_index=wanted.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            diverging_epoch=FetchResponse.EpochEndOffset(epoch, end_offset),
            aborted_transactions=None,
            records=b"",
        )

    def _error(self, wanted: FetchedPartition, error: ErrorCode) -> PartitionData:
        self.urgent |= not self._waits_in_spite_of(wanted, error)
        return refused(self._ctx, wanted, error)

    def _waits_in_spite_of(self, wanted: FetchedPartition, error: ErrorCode) -> bool:
        """Return whether a consumer's Fetch waits for its other partitions in spite of the error. A follower's Fetch
        completes immediately, so that the follower fetches a new partition as soon as this broker leads it."""
        if error not in BEFORE_READING or self._follower is not None:
            return False
        key = (wanted.topic, wanted.index)
        if self.first:
            if self._not_readable_at_first is None:
                self._not_readable_at_first = set()
            self._not_readable_at_first.add(key)
        return self._not_readable_at_first is not None and key in self._not_readable_at_first


def _aborted(partition: Partition, fetch_offset: int, found: FileSlice) -> list[AbortedTransaction]:
    """Return the aborted transactions in the records that were found. Raises STORAGE_ERRORS."""
    return [
        AbortedTransaction(transaction.producer_id, transaction.first_offset)
        for transaction in partition.log.aborted_transactions_of_slice(fetch_offset, found)
    ]
