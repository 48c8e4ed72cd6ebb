"""The partitions of a Fetch, its incremental session if it has one, and its response.

Kafka's FetchContext. Owns finding, creating and closing the session of a request, and the choice of partitions for the
response. Leaves the rules of sessions to `replication.core.fetch_session`.
"""

from __future__ import annotations

from typing import TypeAlias

from odradek_broker.apis.context import Context
from odradek_broker.apis.fetch_errors import (
    FIRST_VERSION_WITH_IDS,
    FIRST_VERSION_WITH_LEADERS,
    PartitionData,
    add_leader_endpoints,
)
from odradek_broker.apis.slices import LoopYielder
from odradek_broker.replication.core.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchedPartition,
    FetchSession,
)
from odradek_broker.replication.follower_fetches import Follower
from odradek_broker.replication.idle_partitions import IdlePartitions
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.fetch import FetchRequest, FetchResponse

FetchedData: TypeAlias = list[tuple[FetchedPartition, PartitionData]]
"""Partitions of a Fetch, each with its part of the response."""

TopicResponses: TypeAlias = dict[str | bytes, FetchResponse.FetchableTopicResponse]
"""The topics of a response, by name or id."""

UNDIVIDED_PARTITIONS_MAX = 1000
"""Partitions that a Fetch may read in one turn of the event loop; with more, it reads in slices."""


class FetchContext:
    """One request: its follower or consumer, its partitions, its session."""

    __slots__ = ("_by_id", "_ctx", "_request", "_requested", "error", "find_partition", "follower", "idle", "session")

    def __init__(self, ctx: Context, request: FetchRequest) -> None:
        self._ctx = ctx
        self._request = request
        version = ctx.api_version
        self._by_id = version >= FIRST_VERSION_WITH_IDS
        partitions = ctx.broker.partitions
        self.find_partition = partitions.get_by_id if self._by_id else partitions.get
        """Returns a partition with a replica on this broker, by topic name or id, and index; None if there is none."""
        state = request.replica_state
        replica, epoch = (state.replica_id, state.replica_epoch) if version >= 15 else (request.replica_id, -1)
        self.follower = (
            Follower(ctx.broker, ctx.broker.replication_quotas.leader, replica, epoch) if replica >= 0 else None
        )
        """The follower that sent the request; None for a consumer."""
        self.session: FetchSession | None = None
        self.idle: IdlePartitions | None = None
        """The idle partitions of a follower's session."""
        self._requested: list[FetchedPartition] = []
        """The partitions of a request without a session."""
        self.error: int = ErrorCode.NONE
        """The error of the whole response, as for a session that does not exist."""
        self._find_session()

    def partitions_to_read(self) -> list[FetchedPartition]:
        """Return the active partitions of the session, or the partitions of a request without one."""
        # A copy, because reading makes some of them idle.
        return self._requested if self.session is None else list(self.session.active.values())

    def is_long(self) -> bool:
        """Return whether there are more partitions than one turn of the event loop may read."""
        return len(self._requested if self.session is None else self.session.active) > UNDIVIDED_PARTITIONS_MAX

    def respond(self, fetched: FetchedData) -> FetchResponse:
        """Return the response: with all partitions, or in a session with those that have records, other offsets than
        before, an error or a preferred replica."""
        response = self._begin_response()
        sent = self._add_to_response(response, {}, fetched)
        if self._ctx.api_version >= FIRST_VERSION_WITH_LEADERS:
            add_leader_endpoints(self._ctx, response, sent)
        return response

    async def respond_in_slices(self, fetched: FetchedData, size: int) -> FetchResponse:
        """Do as `respond`, for `size` partitions at a time, with turns of the event loop for other requests."""
        yielder = LoopYielder()
        response = self._begin_response()
        topics: TopicResponses = {}
        sent: FetchedData = []
        for start in range(0, len(fetched), size):
            await yielder.yield_if_due()
            sent += self._add_to_response(response, topics, fetched[start : start + size])
        if self._ctx.api_version >= FIRST_VERSION_WITH_LEADERS:
            add_leader_endpoints(self._ctx, response, sent)
        return response

    def _begin_response(self) -> FetchResponse:
        """Return a response without partitions. Create the session if the request asks for one."""
        response = FetchResponse(error_code=0, session_id=NO_SESSION)
        if self.session is not None:
            response.session_id = self.session.id
        elif self._request.session_epoch == INITIAL_EPOCH:
            self._create_session(response)
        return response

    def _add_to_response(self, response: FetchResponse, topics: TopicResponses, fetched: FetchedData) -> FetchedData:
        """Add those partitions that the response must contain, and return them. `topics` has the response's topics."""
        session = self.session
        sent = fetched
        if session is not None:
            sent = []
            for wanted, data in fetched:
                has_records = bool(data.records)
                has_more = has_records or data.preferred_read_replica >= 0
                if _record_response(wanted, data, has_more):
                    sent.append((wanted, data))
                    if has_records:
                        session.move_to_end(wanted)
        elif self._request.session_epoch == INITIAL_EPOCH:
            for wanted, data in fetched:
                _record_response(wanted, data, False)
        for wanted, data in sent:
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
                partition = self.find_partition(wanted.topic, wanted.index)  # type: ignore[arg-type]  # a name or an id
                if partition is not None:
                    partition.bytes_out += len(data.records)
                    if self.follower is not None:
                        self.follower.record_sent(partition, len(data.records))
        return sent

    def _find_session(self) -> None:
        request = self._request
        sessions = self._ctx.broker.fetch_sessions
        epoch = request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                sessions.remove(request.session_id)
            self._requested = self._requested_partitions()
            return
        session = sessions.resume(request.session_id, epoch, self._by_id, self._ctx.now_ms)
        if isinstance(session, ErrorCode):
            self.error = session
            return
        if request.topics or request.forgotten_topics_data:
            session.update(
                self._requested_partitions(),
                [
                    (topic.topic_id if self._by_id else topic.topic, index)
                    for topic in request.forgotten_topics_data
                    for index in topic.partitions
                ],
            )
        if session.partitions:
            self.session = session
            if isinstance(session.idle, IdlePartitions):
                self.idle = session.idle
        else:
            sessions.remove(session.id)

    def _create_session(self, response: FetchResponse) -> None:
        is_follower = self.follower is not None
        created = self._ctx.broker.fetch_sessions.create(
            self._requested, len(self._requested), self._by_id, is_follower, self._ctx.now_ms
        )
        if created is not None:
            response.session_id = created.id
            if is_follower:
                created.keep_idle_apart(IdlePartitions(self._ctx.broker.purgatory, created))

    def _requested_partitions(self) -> list[FetchedPartition]:
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


def _record_response(wanted: FetchedPartition, data: PartitionData, has_more: bool) -> bool:
    """Record the partition's data in the session; return whether an incremental response must contain it."""
    return wanted.record_response(
        data.high_watermark,
        data.log_start_offset,
        data.error_code,
        has_more,
        diverging=data.diverging_epoch.epoch >= 0,
    )
