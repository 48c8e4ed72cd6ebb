"""Fetch (key 1): read batches; wait up to `max_wait_ms` until there are `min_bytes`.

Versions: v3 limits the response, v4 has `isolation_level` (KIP-98), v5 the log start offset, v7 sessions (KIP-227), v9
leader epochs (KIP-320), v10 allows zstd, v11 has the consumer's rack (KIP-392), v12 is flexible and detects diverging
logs (KIP-595), v13 has topic ids (KIP-516), v15 broker epochs of followers (KIP-903), v16 names the new leader
(KIP-951), v17 has directory ids (KIP-853), v18 the follower's high watermark (KIP-1166).
Behaviour: a request goes through `fetch_context` (its session and its response), `delayed_fetch` (attempts until it is
complete), `fetch_read` (one partition) and `fetch_errors` (checks before reading). Consumers of versions 0-3 receive
converted batches. Followers read up to the log end offset, and their fetch offset is their progress
(`follower_fetches`).
Differences from Kafka: none.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.delayed_fetch import DelayedFetch
from odradek_broker.apis.fetch_context import FetchContext
from odradek_broker.apis.fetch_errors import FIRST_VERSION_WITH_IDS
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
    """Handle a Fetch of many partitions in slices, with turns of the event loop for other requests in between."""
    deadline_ms = ctx.now_ms + request.max_wait_ms
    while True:
        progress = fetch.progress()
        response = await fetch.attempt_in_slices(ctx.now_ms >= deadline_ms)
        if response is not None:
            return response
        # A partition may change after its slice was read, and a wait that begins now misses that: attempt again.
        if fetch.progress() == progress:
            left_ms = max(deadline_ms - ctx.now_ms, 0)
            waiting = ctx.broker.purgatory.watch(fetch.watchers(), lambda: True, lambda: False, left_ms)
            try:
                in_time = await waiting
            finally:
                waiting.cancel()
            if not in_time:
                deadline_ms = ctx.now_ms


def error_response(ctx: Context, request: FetchRequest, error: ErrorCode) -> FetchResponse:
    """Return a response with the error in every partition, and from version 7 also for the whole request. From version
    13 it has no partitions (Kafka's FetchRequest.getErrorResponse)."""
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


API = Api(FetchRequest, FetchResponse, handle, error_response=error_response, elements_divisor=4)
