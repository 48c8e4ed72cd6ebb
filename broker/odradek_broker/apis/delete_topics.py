"""DeleteTopics (key 20): the controller deletes topics.

Versions: v4 is flexible, v5 has error messages, v6 topic ids (KIP-516).
Behaviour: authorizes, then submits the request to the controller. With a `timeout_ms` of 0 or less, all topics get
REQUEST_TIMED_OUT, if at least one of them is authorized and not repeated (ControllerApis, QuorumController).
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
    may_delete_all = ctx.may_cluster(Operation.DELETE)
    allowed: list[DeleteTopicState] = []
    refused: list[DeletableTopicResult] = []
    for state in states:
        refusal = None if may_delete_all else _refusal(ctx, state)
        if refusal is None:
            allowed.append(state)
        else:
            refused.append(refusal)
    if ctx.refuses_timeout(request.timeout_ms) and ctx.broker.config.boolean("delete.topic.enable"):
        occurrences = Counter((state.name, state.topic_id) for state in states)
        if any(occurrences[state.name, state.topic_id] == 1 and _is_valid(state) for state in allowed):
            return error_response(ctx, request, ErrorCode.REQUEST_TIMED_OUT)
    submitted = DeleteTopicsRequest(topics=allowed, timeout_ms=request.timeout_ms)
    response: DeleteTopicsResponse = await ctx.broker.controller_channel.submit(submitted, ctx.principal)
    response.responses += refused
    return response


def _is_valid(state: DeleteTopicState) -> bool:
    """Return whether the request names the topic by name or by id, not by both or neither."""
    return (state.name is None) != (state.topic_id == ZERO_UUID)


def _refusal(ctx: Context, state: DeleteTopicState) -> DeletableTopicResult | None:
    """Return the result of a topic that the client may not delete."""
    name = state.name
    if name is None:
        topic = ctx.broker.image.topics_by_id.get(state.topic_id)
        if topic is None:
            return None  # the controller responds UNKNOWN_TOPIC_ID
        name = topic.name
    if ctx.may_topic(Operation.DELETE, name):
        return None
    # A client that requests a topic by id learns the name only if it may describe the topic.
    shown = name if state.name is not None or ctx.may_topic(Operation.DESCRIBE, name) else None
    return DeletableTopicResult(shown, state.topic_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)


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
