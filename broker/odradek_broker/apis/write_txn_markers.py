"""WriteTxnMarkers (key 27): a transaction coordinator ends transactions in partitions that this broker leads.

Versions: v1 is flexible, v2 has the transaction version of each transaction (KIP-890).
Behaviour: the log of each partition accepts or refuses its marker. The response is sent when all in-sync replicas have
the markers, with REQUEST_TIMED_OUT for those that take longer than `request.timeout.ms`.
Differences from Kafka: when the result of some partitions is known, the response waits at most `RESPONSE_DELAY_MAX_MS`
for the others, so that a partition with slow replication does not delay the completion of other transactions. Kafka
waits for all partitions.
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
"""The longest time between the first result and the response. The coordinator retries the markers without a result,
and each retry appends the marker again."""

WritableTxnMarker = WriteTxnMarkersRequest.WritableTxnMarker
PartitionErrors = dict[TopicPartition, ErrorCode]
MarkerInReplication = tuple[PartitionErrors, TopicPartition, Deferred[ErrorCode]]
"""The errors of its producer, its partition, and the error with which its replication will complete."""


async def handle(ctx: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    if not ctx.may_cluster(Operation.ALTER) and not ctx.may_cluster(Operation.CLUSTER_ACTION):
        return error_response(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    errors_by_producer: dict[int, PartitionErrors] = {}
    markers_in_replication: list[MarkerInReplication] = []
    for marker in request.markers:
        for partition in _partitions(marker):
            errors = errors_by_producer.setdefault(marker.producer_id, {})
            outcome = _write(ctx, *partition, marker)
            if isinstance(outcome, Deferred):
                markers_in_replication.append((errors, partition, outcome))
            else:
                errors[partition] = outcome
    if markers_in_replication:
        try:
            waiting = [outcome for _, _, outcome in markers_in_replication]
            await _until_replicated(ctx.broker.timers, waiting, some_known=any(errors_by_producer.values()))
            for errors, partition, outcome in markers_in_replication:
                errors[partition] = outcome.result() if outcome.done else ErrorCode.REQUEST_TIMED_OUT
        finally:
            for _, _, outcome in markers_in_replication:
                outcome.cancel()
    return _response(errors_by_producer)


async def _until_replicated(timers: Timers, waiting: list[Deferred[ErrorCode]], *, some_known: bool) -> None:
    """Wait until all are replicated, at most `RESPONSE_DELAY_MAX_MS` after the first one. With `some_known` that time
    begins now."""
    finished: Deferred[None] = Deferred()
    remaining = len(waiting)
    timer: TimerHandle | None = None

    def start_timer() -> None:
        nonlocal timer
        if timer is None:
            timer = timers.call_later(RESPONSE_DELAY_MAX_MS, lambda: finished.complete(None))

    def completed(_: Deferred[ErrorCode]) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining:
            start_timer()
        else:
            finished.complete(None)

    if some_known:
        start_timer()
    for outcome in waiting:
        outcome.when_done(completed)
    try:
        await finished
    finally:
        if timer is not None:
            timer.cancel()


def _partitions(marker: WritableTxnMarker) -> Iterator[TopicPartition]:
    return ((topic.name, index) for topic in marker.topics for index in topic.partition_indexes)


def _write(ctx: Context, topic: str, index: int, marker: WritableTxnMarker) -> ErrorCode | Deferred[ErrorCode]:
    if marker.producer_id < 0 or marker.producer_epoch < 0 or marker.transaction_version < 0:
        # Kafka throws an exception for an invalid producer or transaction version.
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


def _response(errors_by_producer: dict[int, PartitionErrors]) -> WriteTxnMarkersResponse:
    """Return the response, which has one entry for all markers of a producer, as in Kafka."""
    response = WriteTxnMarkersResponse()
    for producer_id, errors in errors_by_producer.items():
        topics: dict[str, WriteTxnMarkersResponse.WritableTxnMarkerTopicResult] = {}
        for (topic, index), error in errors.items():
            row = topics.setdefault(topic, WriteTxnMarkersResponse.WritableTxnMarkerTopicResult(topic))
            row.partitions.append(WriteTxnMarkersResponse.WritableTxnMarkerPartitionResult(index, error))
        response.markers.append(WriteTxnMarkersResponse.WritableTxnMarkerResult(producer_id, list(topics.values())))
    return response


def error_response(ctx: Context, request: WriteTxnMarkersRequest, error: ErrorCode) -> WriteTxnMarkersResponse:
    errors_by_producer: dict[int, PartitionErrors] = {}
    for marker in request.markers:
        errors_by_producer.setdefault(marker.producer_id, {}).update(dict.fromkeys(_partitions(marker), error))
    return _response(errors_by_producer)


API = Api(WriteTxnMarkersRequest, WriteTxnMarkersResponse, handle, error_response=error_response)
