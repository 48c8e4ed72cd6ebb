"""Fetch (key 1), versions 0-18: read batches, now or when there are enough of them.

The hot path: one pass over the partitions, nothing waits when there is something to answer. Incremental sessions are in
`core.fetch_session`; consumers of versions 0-3 get their batches converted down. Followers read up to the log's end
and tell by it how far they are (`follower_fetches`); from version 11 on, consumers may read from followers.
"""

from __future__ import annotations

from typing import TypeAlias

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.delayed_fetch import EarlyCompletion
from odradek_broker.deferred import Deferred
from odradek_broker.network.memory import CONVERSION
from odradek_broker.purgatory import Watchers
from odradek_broker.replication.core.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchedPartition,
    FetchSession,
    PartitionKey,
)
from odradek_broker.replication.follower_fetches import Follower, preferred_replica
from odradek_broker.replication.idle_partitions import IdlePartitions, is_idle_for_consumer, is_idle_for_follower
from odradek_broker.replication.partition import DISK_TROUBLE, Partition
from odradek_broker.security.authorizer import Operation
from odradek_log.errors import OffsetOutOfRangeError
from odradek_log.segment import FileSlice
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.fetch import FetchRequest, FetchResponse
from odradek_wire.records.conversion import down_convert
from odradek_wire.records.errors import CorruptRecordError, UnsupportedRecordsError

PartitionData: TypeAlias = FetchResponse.PartitionData
AbortedTransaction: TypeAlias = FetchResponse.AbortedTransaction

FIRST_VERSION_WITH_IDS = 13
FIRST_VERSION_WITH_ZSTD = 10
FIRST_VERSION_WITH_FOLLOWERS = 11
FIRST_VERSION_WITH_BATCHES = 4
READ_COMMITTED = 1
BEFORE_READING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Errors found before the log is read: Kafka answers them with an empty list of aborted transactions, others with
null."""


def handle(ctx: Context, request: FetchRequest) -> FetchResponse | Deferred[FetchResponse]:
    fetch = Fetch(ctx, request)
    if fetch.session_error:
        return FetchResponse(error_code=fetch.session_error)
    answer = fetch.attempt(request.max_wait_ms <= 0)
    if answer is not None:
        return answer
    return ctx.broker.purgatory.wait(fetch.watchers(), fetch.attempt, fetch.answer_now, request.max_wait_ms)


class Fetch:
    """One request under way: read at once, or again and again until there is enough."""

    __slots__ = (
        "_by_id",
        "_calls",
        "_converted_bytes",
        "_ctx",
        "_early",
        "_first",
        "_follower",
        "_hard_limit",
        "_idle",
        "_max_bytes",
        "_may_read_followers",
        "_min_bytes",
        "_read_committed",
        "_refused_before_reading",
        "_request",
        "_session",
        "_urgent",
        "_version",
        "_wanted",
        "session_error",
        "watched",
    )

    def __init__(self, ctx: Context, request: FetchRequest) -> None:
        self._ctx = ctx
        self._request = request
        self._version = version = ctx.api_version
        self._by_id = version >= FIRST_VERSION_WITH_IDS
        self._follower = self._find_follower()
        self._calls = ctx.broker.follower_fetches.calls
        self._may_read_followers = version >= FIRST_VERSION_WITH_FOLLOWERS and self._follower is None
        self._first = True
        """The first look at the logs; later ones say nothing new of where a follower stands."""
        self._max_bytes = min(request.max_bytes, ctx.broker.config.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        # Up to version 2 the limit was hard: a first batch that did not fit was not sent.
        self._hard_limit = version <= 2
        self._read_committed = request.isolation_level == READ_COMMITTED and self._follower is None
        self._urgent = False
        hurries = self._min_bytes > 1 or self._hard_limit
        self._early = EarlyCompletion(self._min_bytes) if hurries else None
        self._refused_before_reading: set[PartitionKey] = set()
        """Partitions that a consumer may not read or that are unknown, since the first look: they do not end the wait
        for the others, as in Kafka (KafkaApis.handleFetchRequest)."""
        self._converted_bytes = 0
        self._session: FetchSession | None = None
        self._idle: IdlePartitions | None = None
        self._wanted: list[FetchedPartition] = []
        self.session_error: int = ErrorCode.NONE
        self.watched: list[Partition] = []
        self._find_session()

    def watchers(self) -> list[Watchers]:
        """Followers wait for the logs to grow, consumers for more to be committed."""
        if self._follower is not None:
            found = [partition.replica_watchers for partition in self.watched]
            found.append(self._ctx.broker.follower_fetches.watchers)
            return found if self._idle is None else [*found, self._idle.watchers]
        return [partition.watchers for partition in self.watched]

    def attempt(self, at_any_rate: bool = False) -> FetchResponse | None:
        """Read; the answer if there is enough, an error, or nothing to wait for."""
        self._urgent = at_any_rate or (self._follower is not None and self._is_called())
        self._converted_bytes = 0
        self.watched = []
        if self._early is not None:
            self._early.begin_attempt()
        found: list[tuple[FetchedPartition, PartitionData]] = []
        room = self._max_bytes
        min_one = not self._hard_limit
        size = 0
        session = self._session
        for wanted in list(session.active.values()) if session is not None else self._wanted:
            if session is not None and (self._is_idle(wanted) if self._idle is None else self._becomes_idle(wanted)):
                continue
            data = self._read(wanted, room, min_one)
            length = 0 if data.records is None else len(data.records)
            if length:
                min_one = False
                size += length
                room = max(room - length, 0)
            found.append((wanted, data))
        self._first = False
        if size >= self._min_bytes or self._urgent or not (self.watched or self._idle) or self._completes_early():
            return self._answer(found)
        return None

    def _completes_early(self) -> bool:
        if self._early is None:
            return False
        try:
            return self._early.is_due()
        except DISK_TROUBLE:
            return True  # The response says what was read; the next Fetch meets the failed disk.

    def _is_idle(self, wanted: FetchedPartition) -> bool:
        """Return whether the partition is idle for a consumer, and can be skipped. It is watched all the same."""
        partition = self._partition(wanted)
        if partition is None or partition.error or not self._ctx.broker.authorizer.allows_everything:
            return False
        if not is_idle_for_consumer(partition, wanted, self._read_committed):
            return False
        self.watched.append(partition)
        if self._early is not None:
            self._early.add(wanted, partition, wanted.fetch_offset)
        return True

    def _becomes_idle(self, wanted: FetchedPartition) -> bool:
        """Return whether the partition is idle for a follower, and keep it apart from the active ones if so."""
        partition, follower = self._partition(wanted), self._follower
        assert follower is not None
        if (
            partition is None
            or partition.error
            or not is_idle_for_follower(partition, wanted, follower.id)
            or not self._ctx.broker.authorizer.allows_everything
            or follower.error(partition, wanted.leader_epoch)
        ):
            return False
        if self._first:
            follower.holds(partition, wanted)
            if not is_idle_for_follower(partition, wanted, follower.id):
                return False
        leader, idle = partition.leader, self._idle
        assert leader is not None
        assert idle is not None
        idle.add((wanted.topic, wanted.index), partition, leader.followers[follower.id])
        return True

    def _is_called(self) -> bool:
        """Whether there is something for the follower to ask for, since it asked for this."""
        return self._calls != self._ctx.broker.follower_fetches.calls

    def answer_now(self) -> FetchResponse:
        """The time is over: answer with whatever there is."""
        answer = self.attempt(True)
        assert answer is not None
        return answer

    def _find_follower(self) -> Follower | None:
        request = self._request
        state = request.replica_state
        replica, epoch = (state.replica_id, state.replica_epoch) if self._version >= 15 else (request.replica_id, -1)
        return Follower(self._ctx.broker, replica, epoch) if replica >= 0 else None

    # -- sessions -----------------------------------------------------------------------------------------------------

    def _find_session(self) -> None:
        request = self._request
        sessions = self._ctx.broker.fetch_sessions
        epoch = request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                sessions.remove(request.session_id)
            self._wanted = self._read_request()
            return
        found = sessions.resume(request.session_id, epoch, self._by_id, self._ctx.now_ms)
        if isinstance(found, ErrorCode):
            self.session_error = found
            return
        if request.topics or request.forgotten_topics_data:
            found.update(
                self._read_request(),
                [
                    (topic.topic_id if self._by_id else topic.topic, index)
                    for topic in request.forgotten_topics_data
                    for index in topic.partitions
                ],
            )
        if found.partitions:
            self._session = found
            if isinstance(found.idle, IdlePartitions):
                self._idle = found.idle
        else:
            sessions.remove(found.id)

    def _read_request(self) -> list[FetchedPartition]:
        by_id = self._by_id
        return [
            FetchedPartition(
                topic.topic_id if by_id else topic.topic,
                data.partition,
                data.fetch_offset,
                data.partition_max_bytes,
                data.current_leader_epoch,
                data.last_fetched_epoch,
                data.log_start_offset,
                data.high_watermark,
            )
            for topic in self._request.topics
            for data in topic.partitions
        ]

    # -- reading ------------------------------------------------------------------------------------------------------

    def _partition(self, wanted: FetchedPartition) -> Partition | None:
        partitions = self._ctx.broker.partitions
        if self._by_id:
            return partitions.get_by_id(wanted.topic, wanted.index)  # type: ignore[arg-type]  # an id
        return partitions.get(wanted.topic, wanted.index)  # type: ignore[arg-type]  # a name

    def _read(self, wanted: FetchedPartition, room: int, min_one: bool) -> PartitionData:
        """One partition, as of now. Errors end the wait of the whole request, save those of `_was_refused_before`."""
        broker = self._ctx.broker
        partition = self._partition(wanted)
        if partition is None:
            return self._error(wanted, self._why_not_here(wanted))
        if not broker.authorizer.allows_everything and not self._ctx.may_topic(Operation.READ, partition.topic):
            return self._error(wanted, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        epoch = wanted.leader_epoch
        if partition.error or epoch not in (-1, partition.leader_epoch):
            refused = partition.check_epoch(epoch)
            # Whoever leads, or nobody: what is known to be committed may be read (KIP-392).
            here = refused == ErrorCode.NOT_LEADER_OR_FOLLOWER and partition.served_log is not None
            if not (here and self._may_read_followers):
                return self._error(wanted, refused)
        if self._version < FIRST_VERSION_WITH_ZSTD and partition.log.config.compression_type == "zstd":
            return self._error(wanted, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        follower = self._follower
        if follower is not None:
            error = follower.error(partition, epoch)
            if error:
                return self._error(wanted, error)
        if wanted.last_fetched_epoch >= 0:
            diverging = self._diverging(partition, wanted)
            if diverging is not None:
                return diverging
        stable = partition.last_stable_offset
        if follower is not None:
            limit = partition.log_end_offset
            if self._first and wanted.fetch_offset <= limit:
                follower.holds(partition, wanted)
            if wanted.known_high_watermark < partition.high_watermark:
                self._urgent = True  # It serves consumers, who wait for this.
            if -1 < wanted.told_log_start_offset < partition.log_start_offset:
                self._urgent = True  # Whoever deleted the records waits for it.
        else:
            limit = stable if self._read_committed else partition.high_watermark
            if self._request.rack_id and self._may_read_followers:
                preferred = preferred_replica(broker, partition, self._request.rack_id, wanted.fetch_offset)
                if preferred is not None:
                    return self._sent_elsewhere(partition, wanted, preferred)
        high_watermark = partition.high_watermark
        max_bytes = wanted.max_bytes if wanted.max_bytes < room else room
        records: object = b""
        aborted: list[AbortedTransaction] | None = [] if self._read_committed else None
        if follower is not None and follower.is_held_up(partition):
            max_bytes, min_one = 0, False
        elif self._early is not None:
            self._early.add(wanted, partition, limit)
        elif wanted.fetch_offset > limit:
            self._urgent = True  # As after a truncation of the leader (Kafka's DelayedFetch).
        try:
            found = partition.log.read(wanted.fetch_offset, max_bytes, limit=limit, min_one=min_one)
            if found is not None:
                is_understood = self._version >= FIRST_VERSION_WITH_BATCHES
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
        except DISK_TROUBLE:
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

    def _sent_elsewhere(self, partition: Partition, wanted: FetchedPartition, replica: int) -> PartitionData:
        """A replica in the consumer's rack has what it wants (KIP-392)."""
        self._urgent = True
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
        """For a consumer that knows batches not yet: message set of magic 0 (versions 0, 1) or 1 (versions 2, 3).

        Nothing while memory is exhausted: an answer without records is always right, and the consumer asks again."""
        if not self._ctx.connection.has_room(self._converted_bytes + CONVERSION * len(found)):
            return b""
        converted = bytes(down_convert(found.tobytes(), 0 if self._version < 2 else 1, first_offset=fetch_offset))
        self._converted_bytes += len(converted)
        return converted

    def _diverging(self, partition: Partition, wanted: FetchedPartition) -> PartitionData | None:
        """KIP-595: tell a reader whose last epoch ended elsewhere where its log and ours part."""
        epoch, end_offset = partition.log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if epoch < 0:
            return self._error(wanted, ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch >= wanted.last_fetched_epoch and end_offset >= wanted.fetch_offset:
            return None
        self._urgent = True
        return PartitionData(
            partition_index=wanted.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log.log_start_offset,
            diverging_epoch=FetchResponse.EpochEndOffset(epoch, end_offset),
            aborted_transactions=None,
            records=b"",
        )

    def _why_not_here(self, wanted: FetchedPartition) -> ErrorCode:
        image = self._ctx.broker.image
        if self._by_id and wanted.topic not in image.topics_by_id:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if image.partition(wanted.topic, wanted.index) is None:  # type: ignore[arg-type]
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _error(self, wanted: FetchedPartition, error: ErrorCode) -> PartitionData:
        self._urgent |= not self._was_refused_before(wanted, error)
        data = PartitionData(
            partition_index=wanted.index,
            error_code=error,
            high_watermark=-1,
            aborted_transactions=[] if error in BEFORE_READING else None,
            records=b"",
        )
        if self._version >= 16 and error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
            registration = self._ctx.broker.image.partition(wanted.topic, wanted.index)  # type: ignore[arg-type]
            if registration is not None:
                data.current_leader = FetchResponse.LeaderIdAndEpoch(registration.leader, registration.leader_epoch)
        return data

    def _was_refused_before(self, wanted: FetchedPartition, error: ErrorCode) -> bool:
        """Return whether a consumer's other partitions are waited for in spite of the error. A follower is answered
        immediately, so that it asks again for a new partition as soon as this broker leads it."""
        if error not in BEFORE_READING or self._follower is not None:
            return False
        key = (wanted.topic, wanted.index)
        if self._first:
            self._refused_before_reading.add(key)
        return key in self._refused_before_reading

    # -- answering ----------------------------------------------------------------------------------------------------

    def _answer(self, found: list[tuple[FetchedPartition, PartitionData]]) -> FetchResponse:
        session = self._session
        response = FetchResponse(error_code=0, session_id=NO_SESSION)
        told = found
        if session is not None:
            response.session_id = session.id
            told = []
            for wanted, data in found:
                has_records = bool(data.records)
                urgent = has_records or data.preferred_read_replica >= 0
                if wanted.must_tell(data.high_watermark, data.log_start_offset, _refuses(data), urgent):
                    told.append((wanted, data))
                    if has_records:
                        session.served(wanted)
        elif self._request.session_epoch == INITIAL_EPOCH:
            created = self._ctx.broker.fetch_sessions.create(
                self._wanted, len(self._wanted), self._by_id, self._follower is not None, self._ctx.now_ms
            )
            if created is not None:
                response.session_id = created.id
                if self._follower is not None:
                    created.keep_idle_apart(IdlePartitions(self._ctx.broker.purgatory, created))
            for wanted, data in found:
                wanted.must_tell(data.high_watermark, data.log_start_offset, _refuses(data), False)
        topics: dict[str | bytes, FetchResponse.FetchableTopicResponse] = {}
        for wanted, data in told:
            topic = topics.get(wanted.topic)
            if topic is None:
                topic = topics[wanted.topic] = FetchResponse.FetchableTopicResponse()
                if self._by_id:
                    topic.topic_id = wanted.topic  # type: ignore[assignment]
                else:
                    topic.topic = wanted.topic  # type: ignore[assignment]
                response.responses.append(topic)
            topic.partitions.append(data)
            if data.records:
                partition = self._partition(wanted)
                if partition is not None:
                    partition.bytes_out += len(data.records)
                    if self._follower is not None:
                        self._follower.gets(partition, len(data.records))
        if self._version >= 16:
            self._add_endpoints(response, told)
        return response

    def _add_endpoints(self, response: FetchResponse, told: list[tuple[FetchedPartition, PartitionData]]) -> None:
        """The addresses of the leaders named in the answer (KIP-951)."""
        for broker_id in sorted({data.current_leader.leader_id for _, data in told if data.error_code}):
            broker = self._ctx.broker.image.brokers.get(broker_id)
            endpoint = broker.endpoint(self._ctx.listener) if broker is not None else None
            if broker is not None and endpoint is not None:
                response.node_endpoints.append(
                    FetchResponse.NodeEndpoint(broker_id, endpoint.host, endpoint.port, broker.rack)
                )


def _refuses(data: PartitionData) -> int | bool:
    """Whether the answer is one of which a reader takes no high watermark: the error, or that the logs part."""
    return data.error_code or data.diverging_epoch.epoch >= 0


def _aborted(partition: Partition, fetch_offset: int, found: FileSlice) -> list[AbortedTransaction]:
    """What a reader of committed records must skip of what was found. Raises what a failing disk raises."""
    return [
        AbortedTransaction(transaction.producer_id, transaction.first_offset)
        for transaction in partition.log.aborted_in(fetch_offset, found)
    ]


def failed(ctx: Context, request: FetchRequest, error: ErrorCode) -> FetchResponse:
    """Every partition has the error; from version 7 the whole answer has a place for it, and carries no partitions from
    version 13 (Kafka's FetchRequest.getErrorResponse)."""
    response = FetchResponse(error_code=error, session_id=request.session_id)
    if ctx.api_version < FIRST_VERSION_WITH_IDS:
        response.responses = [
            FetchResponse.FetchableTopicResponse(
                topic.topic,
                topic.topic_id,
                [
                    PartitionData(partition_index=data.partition, error_code=error, high_watermark=-1, records=b"")
                    for data in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response


API = Api(FetchRequest, FetchResponse, handle, failed=failed)
