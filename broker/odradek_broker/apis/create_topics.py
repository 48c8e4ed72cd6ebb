"""CreateTopics (key 19): the controller creates topics.

Versions: v1 has `validate_only`, v4 lets a client leave partitions and replication factor to the broker's defaults
(KIP-464), v5 is flexible and returns configurations (KIP-525), v7 has topic ids (KIP-516).
Behaviour: authorizes, then submits the request to the controller. With a `timeout_ms` of 0 or less, all topics get
REQUEST_TIMED_OUT, also with `validate_only`, if at least one of them is authorized and not repeated (ControllerApis,
QuorumController).
Differences from Kafka: a topic that a long request names twice may get TOPIC_ALREADY_EXISTS in place of
INVALID_REQUEST.
"""

from __future__ import annotations

from collections import Counter

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
from odradek_broker.security.authorizer import Operation
from odradek_controller.commands.topic_names import METADATA_TOPIC
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

CreatableTopicResult = CreateTopicsResponse.CreatableTopicResult


async def handle(ctx: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    may_create_all = ctx.may_cluster(Operation.CREATE)
    allowed = [topic for topic in request.topics if may_create_all or ctx.may_topic(Operation.CREATE, topic.name)]
    if ctx.refuses_timeout(request.timeout_ms):
        occurrences = Counter(topic.name for topic in request.topics)
        if any(occurrences[topic.name] == 1 and topic.name != METADATA_TOPIC for topic in allowed):
            return error_response(ctx, request, ErrorCode.REQUEST_TIMED_OUT)
    if may_create_all:
        return await _submit(ctx, request)
    refused = [
        CreatableTopicResult(
            name=topic.name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, error_message="Authorization failed."
        )
        for topic in request.topics
        if topic not in allowed
    ]
    response = await _submit(ctx, CreateTopicsRequest(allowed, request.timeout_ms, request.validate_only))
    response.topics.extend(refused)
    return response


async def _submit(ctx: Context, request: CreateTopicsRequest) -> CreateTopicsResponse:
    response: CreateTopicsResponse = await ctx.broker.controller_channel.submit(request, ctx.principal)
    for topic in response.topics:
        if not topic.error_code and not ctx.may_topic(Operation.DESCRIBE_CONFIGS, topic.name):
            _hide_configs(topic)
    return response


def _hide_configs(topic: CreatableTopicResult) -> None:
    """Remove the configuration from the response to a client without DESCRIBE_CONFIGS on the topic (KIP-525)."""
    topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic.num_partitions, topic.replication_factor, topic.configs = -1, -1, []


def error_response(ctx: Context, request: CreateTopicsRequest, error: ErrorCode) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name, error_code=error) for topic in request.topics]
    )


API = Api(
    CreateTopicsRequest,
    CreateTopicsResponse,
    handle,
    error_response=error_response,
    slices=Slices("topics", "topics", elements=10),
)
