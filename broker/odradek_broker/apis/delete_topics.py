"""DeleteTopics (key 20): the controller deletes topics.

Versions: v4 is flexible, v5 has error messages, v6 topic ids (KIP-516).
Behaviour: authorizes, then submits the request to the controller. A `timeout_ms` of 0 or less fails the whole request
with REQUEST_TIMED_OUT, unless every topic of the request fails before that check (ControllerApis, QuorumController).
Differences from Kafka: none.
"""

from __future__ import annotations

from collections import Counter

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek_wire.uuid import ZERO_UUID

DeletableTopicResult = DeleteTopicsResponse.DeletableTopicResult
DeleteTopicState = DeleteTopicsRequest.DeleteTopicState


async def handle(ctx: Context, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
    states = [*request.topics, *(DeleteTopicState(name, ZERO_UUID) for name in request.topic_names)]
    refused = [(state, error) for state in states if (error := _refusal(ctx, state)) is not None]
    allowed = [state for state in states if _refusal(ctx, state) is None]
    if ctx.refuses_timeout(request.timeout_ms) and ctx.broker.config.boolean("delete.topic.enable"):
        times = Counter((state.name, state.topic_id) for state in states)
        if any(times[state.name, state.topic_id] == 1 and _is_named(state) for state in allowed):
            return error_response(ctx, request, ErrorCode.REQUEST_TIMED_OUT)
    submitted = DeleteTopicsRequest(topics=allowed, timeout_ms=request.timeout_ms)
    response: DeleteTopicsResponse = await ctx.broker.controller_channel.submit(submitted, ctx.principal)
    response.responses += [
        # A topic requested by id has no name here, so that a principal without DESCRIBE does not learn it.
        DeletableTopicResult(state.name, state.topic_id, error, None)
        for state, error in refused
    ]
    return response


def _is_named(state: DeleteTopicState) -> bool:
    """Return whether the request names the topic by name or by id, not by both or neither."""
    return (state.name is None) != (state.topic_id == ZERO_UUID)


def _refusal(ctx: Context, state: DeleteTopicState) -> ErrorCode | None:
    name = state.name
    if name is None:
        topic = ctx.broker.image.topics_by_id.get(state.topic_id)
        if topic is None:
            return None  # the controller responds UNKNOWN_TOPIC_ID
        name = topic.name
    return None if ctx.may_topic(Operation.DELETE, name) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def error_response(ctx: Context, request: DeleteTopicsRequest, error: ErrorCode) -> DeleteTopicsResponse:
    states = [*request.topics, *(DeleteTopicState(name, ZERO_UUID) for name in request.topic_names)]
    return DeleteTopicsResponse(
        responses=[DeletableTopicResult(state.name, state.topic_id, error, None) for state in states]
    )


API = Api(
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    handle,
    error_response=error_response,
    slices=Slices("topics", "responses", elements=10, in_old_versions="topic_names"),
)
