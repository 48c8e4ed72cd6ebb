"""CreatePartitions (key 37): the controller adds partitions to topics.

Versions: v2 is flexible, v3 is for controller mutation quotas (KIP-599).
Behaviour: authorizes, then submits the request to the controller. With a `timeout_ms` of 0 or less, all topics get
REQUEST_TIMED_OUT, also with `validate_only`, if at least one of them is authorized and not repeated (ControllerApis,
QuorumController).
Differences from Kafka: none.
"""

from __future__ import annotations

from collections import Counter

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

CreatePartitionsTopicResult = CreatePartitionsResponse.CreatePartitionsTopicResult


async def handle(ctx: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    allowed = [topic for topic in request.topics if ctx.may_topic(Operation.ALTER, topic.name)]
    if ctx.refuses_timeout(request.timeout_ms):
        occurrences = Counter(topic.name for topic in request.topics)
        if any(occurrences[topic.name] == 1 for topic in allowed):
            return error_response(ctx, request, ErrorCode.REQUEST_TIMED_OUT)
    submitted = CreatePartitionsRequest(allowed, request.timeout_ms, request.validate_only)
    response: CreatePartitionsResponse = await ctx.broker.controller_channel.submit(submitted, ctx.principal)
    response.results += [
        CreatePartitionsTopicResult(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        for topic in request.topics
        if not ctx.may_topic(Operation.ALTER, topic.name)
    ]
    return response


def error_response(ctx: Context, request: CreatePartitionsRequest, error: ErrorCode) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(topic.name, error, None) for topic in request.topics]
    )


API = Api(
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    handle,
    error_response=error_response,
    slices=Slices("topics", "results", elements=10),
)
