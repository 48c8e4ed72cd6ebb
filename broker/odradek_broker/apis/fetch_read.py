"""Reading one partition for a Fetch.

Owns the offset up to which a client reads (a follower to the log end offset, a consumer to the high watermark or the
last stable offset), recording the progress of a follower, the choice of a replica in the consumer's rack (KIP-392),
diverging epochs (KIP-595), and the conversion of batches for consumers of versions 0-3. Leaves the checks before
reading to `fetch_errors`, and the decision to wait to `delayed_fetch`.
"""

from __future__ import annotations

from typing import TypeAlias

from odradek_broker.apis.context import Context
from odradek_broker.apis.early_completion import EarlyCompletion
from odradek_broker.apis.fetch_context import FetchContext
from odradek_broker.apis.fetch_errors import (
    ERRORS_BEFORE_READING,
    FIRST_VERSION_WITH_FOLLOWER_READS,
    PartitionData,
    error_data,
    fetch_error,
    missing_partition_error,
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
    """Reads the partitions of one request, all of them at each attempt to complete it."""

    __slots__ = (
        "_context",
        "_converted_bytes",
        "_ctx",
        "_early",
        "_follower",
        "_not_readable_at_first",
        "_rack",
        "completes_fetch",
        "is_first_attempt",
        "read_committed",
        "watched",
    )

    def __init__(
        self, ctx: Context, request: FetchRequest, context: FetchContext, early: EarlyCompletion | None
    ) -> None:
        self._ctx = ctx
        self._context = context
        self._follower = follower = context.follower
        self.read_committed = request.isolation_level == READ_COMMITTED and follower is None
        may_read_followers = ctx.api_version >= FIRST_VERSION_WITH_FOLLOWER_READS and follower is None
        self._rack = request.rack_id if may_read_followers else ""
        self._early = early
        self._not_readable_at_first: set[PartitionKey] | None = None
        """The partitions for which the first attempt of a consumer's Fetch found one of `ERRORS_BEFORE_READING`: as in
        Kafka (KafkaApis.handleFetchRequest), they do not complete the Fetch. None if there are none."""
        self._converted_bytes = 0
        self.is_first_attempt = True
        """Only the first attempt records the progress of a follower."""
        self.completes_fetch = False
        """Whether the Fetch completes after this attempt, however few bytes it has."""
        self.watched: list[Partition] = []
        """The partitions whose changes may complete the Fetch."""

    def begin_attempt(self) -> None:
        """Forget the partitions of the attempt before."""
        self.watched = []
        self._converted_bytes = 0
        if self._early is not None:
            self._early.begin_attempt()

    def watch_idle(self, wanted: FetchedPartition, partition: Partition) -> None:
        """Watch a partition that has nothing new for a consumer, without reading it."""
        self.watched.append(partition)
        if self._early is not None:
            self._early.add_read(wanted, partition, wanted.fetch_offset)

    def read(self, wanted: FetchedPartition, room: int, min_one: bool) -> PartitionData:
        """Return the partition's part of the response, with at most `room` bytes, or with the first batch of any size
        if `min_one`."""
        ctx = self._ctx
        partition = self._context.find_partition(wanted.topic, wanted.index)  # type: ignore[arg-type]  # a name or an id
        if partition is None:
            return self._error(wanted, missing_partition_error(ctx, wanted))
        follower = self._follower
        error = fetch_error(ctx, partition, wanted, follower)
        if error:
            return self._error(wanted, error)
        if wanted.last_fetched_epoch >= 0:
            diverging = self._diverging(partition, wanted)
            if diverging is not None:
                return diverging
        last_stable_offset = partition.last_stable_offset
        if follower is not None:
            limit = partition.log_end_offset
            if self.is_first_attempt and wanted.fetch_offset <= limit:
                follower.record_fetch(partition, wanted)
            if wanted.known_high_watermark < partition.high_watermark:
                self.completes_fetch = True  # the follower serves consumers up to its high watermark
            if -1 < wanted.last_sent_log_start_offset < partition.log_start_offset:
                self.completes_fetch = True  # DeleteRecords waits for the follower
        else:
            limit = last_stable_offset if self.read_committed else partition.high_watermark
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
            self._early.add_read(wanted, partition, limit)
        elif wanted.fetch_offset > limit:
            self.completes_fetch = True  # as after a truncation of the leader (Kafka's DelayedFetch)
        try:
            batches = partition.log.read(wanted.fetch_offset, max_bytes, limit=limit, min_one=min_one)
            if batches is not None:
                reads_batches = ctx.api_version >= FIRST_VERSION_WITH_BATCHES
                if not (reads_batches or partition.log.config.message_downconversion_enable):
                    return self._error(wanted, ErrorCode.UNSUPPORTED_VERSION)
                records = batches if reads_batches else self._converted(batches, wanted.fetch_offset)
                if aborted is not None:
                    aborted = _aborted(partition, wanted.fetch_offset, batches)
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
            last_stable_offset=last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=aborted,
            records=records,  # type: ignore[arg-type]  # bytes, a slice of a file, or a converted message set
        )

    def _redirected(self, partition: Partition, wanted: FetchedPartition, replica: int) -> PartitionData:
        """Return the part of the response that redirects the consumer to a replica in its rack (KIP-392)."""
        self.completes_fetch = True
        return PartitionData(
            partition_index=wanted.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=replica,
            records=b"",
        )

    def _converted(self, batches: FileSlice, fetch_offset: int) -> bytes:
        """Return batches as a message set of magic 0 (versions 0 and 1) or 1 (versions 2 and 3); no records while
        memory is exhausted, so that the consumer fetches again."""
        if not self._ctx.connection.has_room(self._converted_bytes + ROOM_PER_CONVERTED_BYTE * len(batches)):
            return b""
        converted = bytes(
            down_convert(batches.tobytes(), 0 if self._ctx.api_version < 2 else 1, first_offset=fetch_offset)
        )
        self._converted_bytes += len(converted)
        return converted

    def _diverging(self, partition: Partition, wanted: FetchedPartition) -> PartitionData | None:
        """Return the part of the response for a follower whose log diverges (KIP-595), None if it does not diverge."""
        epoch, end_offset = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch < 0:
            return self._error(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch >= wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return None
        self.completes_fetch = True
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
        if not self._waits_despite(wanted, error):
            self.completes_fetch = True
        return error_data(self._ctx, wanted, error)

    def _waits_despite(self, wanted: FetchedPartition, error: ErrorCode) -> bool:
        """Return whether the Fetch waits for its other partitions in spite of the error, as a consumer's Fetch does
        after some errors. A follower's Fetch completes after any error, so that the follower fetches a new partition as
        soon as this broker leads it."""
        if error not in ERRORS_BEFORE_READING or self._follower is not None:
            return False
        key = (wanted.topic, wanted.index)
        if self.is_first_attempt:
            if self._not_readable_at_first is None:
                self._not_readable_at_first = set()
            self._not_readable_at_first.add(key)
        return self._not_readable_at_first is not None and key in self._not_readable_at_first


def _aborted(partition: Partition, fetch_offset: int, batches: FileSlice) -> list[AbortedTransaction]:
    """Return the aborted transactions in these batches. Raises STORAGE_ERRORS."""
    return [
        AbortedTransaction(transaction.producer_id, transaction.first_offset)
        for transaction in partition.log.aborted_transactions_of_slice(fetch_offset, batches)
    ]
