"""CreatePartitions (key 37), versions 0-3: a topic grows; the controller decides and answers."""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse

Result = CreatePartitionsResponse.CreatePartitionsTopicResult


async def handle(ctx: Context, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    allowed = [topic for topic in request.topics if ctx.may_topic(Operation.ALTER, topic.name)]
    response = await ctx.broker.controller.create_partitions(
        CreatePartitionsRequest(allowed, request.timeout_ms, request.validate_only)
    )
    response.results += [
        Result(topic.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        for topic in request.topics
        if not ctx.may_topic(Operation.ALTER, topic.name)
    ]
    return response


def failed(ctx: Context, request: CreatePartitionsRequest, error: ErrorCode) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(results=[Result(topic.name, error, None) for topic in request.topics])


API = Api(CreatePartitionsRequest, CreatePartitionsResponse, handle, failed=failed)
