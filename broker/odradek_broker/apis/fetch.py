"""Fetch (key 1), versions 0-18: read batches, now or when there are enough of them.

The hot path: one pass over the partitions, nothing waits when there is something to answer. A request goes through
`fetch_context` (its session and its response), `delayed_fetch` (read until there is enough), `fetch_read` (one
partition) and `fetch_refusal` (what may not be read). Consumers of versions 0-3 get their batches converted down.
Followers read up to the log's end and tell by it how far they are (`follower_fetches`); from version 11 on, consumers
may read from followers.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.delayed_fetch import DelayedFetch
from odradek_broker.apis.fetch_context import FetchContext
from odradek_broker.apis.fetch_refusal import FIRST_VERSION_WITH_IDS
from odradek_broker.apis.slices import Sliced
from odradek_broker.deferred import Deferred
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.fetch import FetchRequest, FetchResponse


def handle(ctx: Context, request: FetchRequest) -> FetchResponse | Deferred[FetchResponse] | Sliced:
    context = FetchContext(ctx, request)
    if context.error:
        return FetchResponse(error_code=context.error)
    fetch = DelayedFetch(ctx, request, context)
    if context.is_long():
        return Sliced(_handle_long(ctx, request, fetch))
    response = fetch.attempt(request.max_wait_ms <= 0)
    if response is not None:
        return response
    return ctx.broker.purgatory.watch(fetch.watchers(), fetch.attempt, fetch.expire, request.max_wait_ms)


async def _handle_long(ctx: Context, request: FetchRequest, fetch: DelayedFetch) -> FetchResponse:
    """As `handle`, with turns for others between slices of the partitions."""
    deadline_ms = ctx.now_ms + request.max_wait_ms
    while True:
        progress = fetch.progress()
        response = await fetch.attempt_in_slices(ctx.now_ms >= deadline_ms)
        if response is not None:
            return response
        # An append to a partition whose slice was over completes no wait that begins now: attempt again.
        if fetch.progress() == progress:
            left_ms = max(deadline_ms - ctx.now_ms, 0)
            waiting = ctx.broker.purgatory.watch(fetch.watchers(), lambda: True, lambda: False, left_ms)
            try:
                in_time = await waiting
            finally:
                waiting.cancel()
            if not in_time:
                deadline_ms = ctx.now_ms


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
                    FetchResponse.PartitionData(
                        partition_index=data.partition, error_code=error, high_watermark=-1, records=b""
                    )
                    for data in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response


API = Api(FetchRequest, FetchResponse, handle, failed=failed, elements_part=4)
