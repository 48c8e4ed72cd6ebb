"""WriteTxnMarkers (key 27), versions 0-2: a transaction is over, says its coordinator or an administrator.

Each partition's log judges the marker for itself. Answered when all replicas in sync have it, or when that has taken
longer than `request.timeout.ms`. As soon as something is known of some partitions the others are given little time: one
that is short of replicas does not keep from the coordinator that other transactions are over. Kafka waits for all.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.deferred import Deferred
from odradek_broker.security.authorizer import Operation
from odradek_broker.timers import TimerHandle, Timers
from odradek_broker.transactions.marker_writing import write_marker
from odradek_log.producer_state import TransactionMarker
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

KNOWN_TOGETHER_MS = 500
"""How much longer than the first outcome the last may take. A coordinator asks again for what is missing then, which
appends another marker."""

Marker = WriteTxnMarkersRequest.WritableTxnMarker
Outcomes = dict[tuple[str, int], ErrorCode]
"""Of one producer's markers, by topic and partition."""
Awaited = tuple[Outcomes, tuple[str, int], Deferred[ErrorCode]]


async def handle(ctx: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    if not ctx.may_cluster(Operation.ALTER) and not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return failed(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    by_producer: dict[int, Outcomes] = {}
    waiting: list[Awaited] = []
    for marker in request.markers:
        for topic, index in _places(marker):
            outcomes = by_producer.setdefault(marker.producer_id, {})
            outcome = _write(ctx, topic, index, marker)
            if isinstance(outcome, Deferred):
                waiting.append((outcomes, (topic, index), outcome))
            else:
                outcomes[topic, index] = outcome
    if waiting:
        try:
            await _replicated(ctx.broker.timers, [reached for _, _, reached in waiting], any(by_producer.values()))
            for outcomes, place, reached in waiting:
                outcomes[place] = reached.result() if reached.done else ErrorCode.REQUEST_TIMED_OUT
        finally:
            for _, _, reached in waiting:
                reached.cancel()
    return _response(by_producer)


async def _replicated(timers: Timers, waiting: list[Deferred[ErrorCode]], some_known: bool) -> None:
    """Wait for all of them, but for no longer than `KNOWN_TOGETHER_MS` once one is there (or `some_known` is)."""
    over: Deferred[None] = Deferred()
    left = len(waiting)
    limit: TimerHandle | None = None

    def known() -> None:
        nonlocal limit
        if not left:
            over.complete(None)
        elif limit is None:
            limit = timers.call_later(KNOWN_TOGETHER_MS, lambda: over.complete(None))

    def reached(_: Deferred[ErrorCode]) -> None:
        nonlocal left
        left -= 1
        known()

    if some_known:
        known()
    for each in waiting:
        each.when_done(reached)
    try:
        await over
    finally:
        if limit is not None:
            limit.cancel()


def _places(marker: Marker) -> Iterator[tuple[str, int]]:
    return ((topic.name, index) for topic in marker.topics for index in topic.partition_indexes)


def _write(ctx: Context, topic: str, index: int, marker: Marker) -> ErrorCode | Deferred[ErrorCode]:
    if marker.producer_id < 0 or marker.producer_epoch < 0 or marker.transaction_version < 0:
        # Nobody's marker, or of no known kind: Kafka has no better code for it.
        return ErrorCode.UNKNOWN_SERVER_ERROR
    written = TransactionMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        marker.transaction_version,
    )
    timeout_ms = ctx.broker.config.integer("request.timeout.ms")
    return write_marker(ctx.broker.partitions, topic, index, written, timeout_ms)


def _response(by_producer: dict[int, Outcomes]) -> WriteTxnMarkersResponse:
    """As in Kafka, the markers of one producer share a row."""
    response = WriteTxnMarkersResponse()
    for producer_id, outcomes in by_producer.items():
        topics: dict[str, WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = {}
        for (topic, index), error in outcomes.items():
            row = topics.setdefault(topic, WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(topic))
            row.partitions.append(WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(index, error))
        response.markers.append(WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id, list(topics.values())))
    return response


def failed(ctx: Context, request: WriteTxnMarkersRequest, error: ErrorCode) -> WriteTxnMarkersResponse:
    by_producer: dict[int, Outcomes] = {}
    for marker in request.markers:
        by_producer.setdefault(marker.producer_id, {}).update(dict.fromkeys(_places(marker), error))
    return _response(by_producer)


API = Api(WriteTxnMarkersRequest, WriteTxnMarkersResponse, handle, failed=failed)
