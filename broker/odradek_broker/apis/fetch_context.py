"""The partitions of a Fetch, with its incremental session if it has one, and the response to it.

Kafka's FetchContext. Owns finding, creating and closing the session of a request, and which partitions the response
mentions. The rules of sessions are in `replication.core.fetch_session`.
"""

from __future__ import annotations

from typing import TypeAlias

from odradek_broker.apis.context import Context
from odradek_broker.apis.fetch_refusal import (
    FIRST_VERSION_WITH_IDS,
    FIRST_VERSION_WITH_LEADERS,
    PartitionData,
    add_endpoints,
)
from odradek_broker.apis.slices import Turns
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

TopicResponses: TypeAlias = dict[str | bytes, FetchResponse.FetchableTopicResponse]
"""The topics of a response, by name or id."""

LONG = 1000
"""Partitions that a Fetch may read in one turn of the event loop; with more, it reads in slices."""


class FetchContext:
    """One request: its reader, its partitions, its session."""

    __slots__ = ("_by_id", "_ctx", "_request", "error", "find", "follower", "idle", "session", "wanted")

    def __init__(self, ctx: Context, request: FetchRequest) -> None:
        self._ctx = ctx
        self._request = request
        version = ctx.api_version
        self._by_id = version >= FIRST_VERSION_WITH_IDS
        partitions = ctx.broker.partitions
        self.find = partitions.get_by_id if self._by_id else partitions.get
        """Returns the hosted partition by the topic's name or id, and the index."""
        state = request.replica_state
        replica, epoch = (state.replica_id, state.replica_epoch) if version >= 15 else (request.replica_id, -1)
        self.follower = (
            Follower(ctx.broker, ctx.broker.replication_quotas.leader, replica, epoch) if replica >= 0 else None
        )
        """The broker that fetches; None for a consumer."""
        self.session: FetchSession | None = None
        self.idle: IdlePartitions | None = None
        """The idle partitions of a follower's session."""
        self.wanted: list[FetchedPartition] = []
        """The partitions of a request without a session."""
        self.error: int = ErrorCode.NONE
        """The error of the whole response, if the session does not exist or its epoch is wrong."""
        self._find_session()

    def asked(self) -> list[FetchedPartition]:
        """Return the partitions to read; those of a session as a copy, because reading makes some of them idle."""
        return self.wanted if self.session is None else list(self.session.active.values())

    def is_long(self) -> bool:
        """Return whether there are more partitions than are read in one turn of the event loop."""
        return len(self.wanted if self.session is None else self.session.active) > LONG

    def respond(self, found: list[tuple[FetchedPartition, PartitionData]]) -> FetchResponse:
        """Return the response: with all partitions, or in a session with those that have records, other offsets than
        before, an error or a preferred replica."""
        response = self._begin_response()
        sent = self._add_to_response(response, {}, found)
        if self._ctx.api_version >= FIRST_VERSION_WITH_LEADERS:
            add_endpoints(self._ctx, response, sent)
        return response

    async def respond_in_slices(self, found: list[tuple[FetchedPartition, PartitionData]], size: int) -> FetchResponse:
        """Do as `respond`, for `size` partitions at a time, with turns of the event loop for other requests."""
        turns = Turns()
        response = self._begin_response()
        topics: TopicResponses = {}
        sent: list[tuple[FetchedPartition, PartitionData]] = []
        for start in range(0, len(found), size):
            await turns.others_first()
            sent += self._add_to_response(response, topics, found[start : start + size])
        if self._ctx.api_version >= FIRST_VERSION_WITH_LEADERS:
            add_endpoints(self._ctx, response, sent)
        return response

    def _begin_response(self) -> FetchResponse:
        """Return a response without partitions; create the session that a full request asks for."""
        response = FetchResponse(error_code=0, session_id=NO_SESSION)
        if self.session is not None:
            response.session_id = self.session.id
        elif self._request.session_epoch == INITIAL_EPOCH:
            self._create_session(response)
        return response

    def _add_to_response(
        self,
        response: FetchResponse,
        topics: TopicResponses,
        found: list[tuple[FetchedPartition, PartitionData]],
    ) -> list[tuple[FetchedPartition, PartitionData]]:
        """Add those partitions that the response must contain, and return them. `topics` has the response's topics."""
        session = self.session
        sent = found
        if session is not None:
            sent = []
            for wanted, data in found:
                has_records = bool(data.records)
                has_more = has_records or data.preferred_read_replica >= 0
                if _record_response(wanted, data, has_more):
                    sent.append((wanted, data))
                    if has_records:
                        session.move_to_end(wanted)
        elif self._request.session_epoch == INITIAL_EPOCH:
            for wanted, data in found:
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
                partition = self.find(wanted.topic, wanted.index)  # type: ignore[arg-type]  # a name or an id
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
            self.wanted = self._read_request()
            return
        found = sessions.resume(request.session_id, epoch, self._by_id, self._ctx.now_ms)
        if isinstance(found, ErrorCode):
            self.error = found
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
            self.session = found
            if isinstance(found.idle, IdlePartitions):
                self.idle = found.idle
        else:
            sessions.remove(found.id)

    def _create_session(self, response: FetchResponse) -> None:
        is_follower = self.follower is not None
        created = self._ctx.broker.fetch_sessions.create(
            self.wanted, len(self.wanted), self._by_id, is_follower, self._ctx.now_ms
        )
        if created is not None:
            response.session_id = created.id
            if is_follower:
                created.keep_idle_apart(IdlePartitions(self._ctx.broker.purgatory, created))

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


def _record_response(wanted: FetchedPartition, data: PartitionData, has_more: bool) -> bool:
    """Record the partition's data in the session; return whether an incremental response must contain it."""
    return wanted.record_response(
        data.high_watermark,
        data.log_start_offset,
        data.error_code,
        has_more,
        diverging=data.diverging_epoch.epoch >= 0,
    )
