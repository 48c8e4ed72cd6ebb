"""WriteTxnMarkers (key 27): end transactions in partitions that this broker leads, for their coordinator.

Versions: 0-2; v2 has the transaction version of each transaction (KIP-890).
Behaviour: the log of each partition accepts or refuses its marker. The response is sent when all in-sync replicas have
the markers, with REQUEST_TIMED_OUT for those that take longer than `request.timeout.ms`.
Differences from Kafka: when the outcome of some partitions is known, the response waits `RESPONSE_DELAY_MAX_MS` for the
others, so that a partition with slow replication does not delay the completion of other transactions. Kafka waits for
all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.deferred import Deferred
from odradek_broker.security.authorizer import Operation
from odradek_broker.timers import TimerHandle, Timers
from odradek_broker.transactions.core.transaction_metadata import TopicPartition
from odradek_broker.transactions.marker_writing import write_marker
from odradek_log.producer_state_manager import TransactionMarker
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

RESPONSE_DELAY_MAX_MS = 500
"""The delay between the first outcome and the response. The coordinator retries the markers without an outcome, which
appends each of them again."""

WritableTxnMarker = WriteTxnMarkersRequest.WritableTxnMarker
PartitionErrors = dict[TopicPartition, ErrorCode]
Replication = tuple[PartitionErrors, TopicPartition, Deferred[ErrorCode]]
"""A marker that is not replicated yet, and the place of its error in the response."""


async def handle(ctx: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    if not ctx.may_cluster(Operation.ALTER) and not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return error_response(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    by_producer: dict[int, PartitionErrors] = {}
    replicating: list[Replication] = []
    for marker in request.markers:
        for partition in _partitions(marker):
            errors = by_producer.setdefault(marker.producer_id, {})
            outcome = _write(ctx, *partition, marker)
            if isinstance(outcome, Deferred):
                replicating.append((errors, partition, outcome))
            else:
                errors[partition] = outcome
    if replicating:
        try:
            waiting = [outcome for _, _, outcome in replicating]
            await _until_replicated(ctx.broker.timers, waiting, some_known=any(by_producer.values()))
            for errors, partition, outcome in replicating:
                errors[partition] = outcome.result() if outcome.done else ErrorCode.REQUEST_TIMED_OUT
        finally:
            for _, _, outcome in replicating:
                outcome.cancel()
    return _response(by_producer)


async def _until_replicated(timers: Timers, waiting: list[Deferred[ErrorCode]], *, some_known: bool) -> None:
    """Wait until all have completed, at most `RESPONSE_DELAY_MAX_MS` after the first one; with `some_known`, after
    now."""
    over: Deferred[None] = Deferred()
    left = len(waiting)
    timer: TimerHandle | None = None

    def start_timer() -> None:
        nonlocal timer
        if timer is None:
            timer = timers.call_later(RESPONSE_DELAY_MAX_MS, lambda: over.complete(None))

    def completed(_: Deferred[ErrorCode]) -> None:
        nonlocal left
        left -= 1
        if left:
            start_timer()
        else:
            over.complete(None)

    if some_known:
        start_timer()
    for outcome in waiting:
        outcome.when_done(completed)
    try:
        await over
    finally:
        if timer is not None:
            timer.cancel()


def _partitions(marker: WritableTxnMarker) -> Iterator[TopicPartition]:
    return ((topic.name, index) for topic in marker.topics for index in topic.partition_indexes)


def _write(ctx: Context, topic: str, index: int, marker: WritableTxnMarker) -> ErrorCode | Deferred[ErrorCode]:
    if marker.producer_id < 0 or marker.producer_epoch < 0 or marker.transaction_version < 0:
        # No valid producer or transaction version: Kafka returns this code, too.
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


def _response(by_producer: dict[int, PartitionErrors]) -> WriteTxnMarkersResponse:
    """As in Kafka, the markers of one producer share a row."""
    response = WriteTxnMarkersResponse()
    for producer_id, errors in by_producer.items():
        topics: dict[str, WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = {}
        for (topic, index), error in errors.items():
            row = topics.setdefault(topic, WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(topic))
            row.partitions.append(WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(index, error))
        response.markers.append(WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id, list(topics.values())))
    return response


def error_response(ctx: Context, request: WriteTxnMarkersRequest, error: ErrorCode) -> WriteTxnMarkersResponse:
    by_producer: dict[int, PartitionErrors] = {}
    for marker in request.markers:
        by_producer.setdefault(marker.producer_id, {}).update(dict.fromkeys(_partitions(marker), error))
    return _response(by_producer)


API = Api(WriteTxnMarkersRequest, WriteTxnMarkersResponse, handle, error_response=error_response)
