"""FindCoordinator (key 10): the broker that coordinates a group or a transactional id.

Versions: v1 has transactional ids, v4 several keys (KIP-699), v6 share groups (KIP-932).
Behaviour: the first request of a type creates the internal topic; the response waits until the topic exists.
Differences from Kafka: Kafka returns COORDINATOR_NOT_AVAILABLE while it creates the topic. Share groups are refused.
"""

from __future__ import annotations

from collections.abc import Awaitable
from enum import IntEnum
from typing import NamedTuple

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
from odradek_broker.metadata.topic_creation import ensure_internal_topic
from odradek_broker.metadata.view import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek_broker.security.authorizer import Operation, ResourceType
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

BATCH_FROM = 4


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


TOPICS: dict[int, str] = {
    CoordinatorType.GROUP: CONSUMER_OFFSETS,
    CoordinatorType.TRANSACTION: TRANSACTION_STATE,
}
"""The internal topic of each type of coordinator."""


class CoordinatorLookup(NamedTuple):
    """The coordinator of a key, or an error."""

    error: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1


# Kafka's messages for these errors, which responses before v4 have.
MESSAGES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    ErrorCode.INVALID_REQUEST: "This most likely occurs because of a request being malformed by the client library or"
    " the message was sent to an incompatible broker. See the broker logs for more details.",
}


def handle(
    ctx: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    topic = TOPICS.get(request.key_type)
    if topic is not None and topic not in ctx.broker.image.topics:
        return _create_topic_first(ctx, request, topic)
    return _respond(ctx, request)


async def _create_topic_first(ctx: Context, request: FindCoordinatorRequest, topic: str) -> FindCoordinatorResponse:
    """Create the internal topic and wait for it, so that the client does not have to retry."""
    keys = request.coordinator_keys if ctx.api_version >= BATCH_FROM else [request.key]
    if any(_may_describe(ctx, request.key_type, key) for key in keys):
        await ensure_internal_topic(ctx.broker, topic)
    return _respond(ctx, request)


def _may_describe(ctx: Context, key_type: int, key: str) -> bool:
    if key_type == CoordinatorType.GROUP:
        return ctx.may_group(Operation.DESCRIBE, key)
    return ctx.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key)


def _respond(ctx: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if ctx.api_version >= BATCH_FROM:
        return FindCoordinatorResponse(
            coordinators=[_entry(ctx, request.key_type, key) for key in request.coordinator_keys]
        )
    error, node_id, host, port = _find(ctx, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=error, error_message=MESSAGES[error], node_id=node_id, host=host, port=port
    )


def _entry(ctx: Context, key_type: int, key: str) -> FindCoordinatorResponse.Coordinator:
    error, node_id, host, port = _find(ctx, key_type, key)
    # From v4 on, Kafka sends a message only for an unknown key type.
    known = 0 <= key_type < len(CoordinatorType)
    return FindCoordinatorResponse.Coordinator(
        key=key, node_id=node_id, host=host, port=port, error_code=error, error_message="" if known else MESSAGES[error]
    )


def _find(ctx: Context, key_type: int, key: str) -> CoordinatorLookup:
    broker = ctx.broker
    match key_type:
        case CoordinatorType.GROUP:
            if not _may_describe(ctx, key_type, key):
                return CoordinatorLookup(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            return _leader(ctx, CONSUMER_OFFSETS, broker.group_coordinator.partition_of(key))
        case CoordinatorType.TRANSACTION:
            if not _may_describe(ctx, key_type, key):
                return CoordinatorLookup(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return _leader(ctx, TRANSACTION_STATE, broker.transaction_coordinator.partition_of(key))
        case _:
            return CoordinatorLookup(ErrorCode.INVALID_REQUEST)


def _leader(ctx: Context, topic: str, index: int) -> CoordinatorLookup:
    image = ctx.broker.image
    partition = image.partition(topic, index)
    leader = None if partition is None else image.brokers.get(partition.leader)
    endpoint = None if leader is None or leader.fenced else leader.endpoint(ctx.listener)
    if leader is None or endpoint is None:
        return CoordinatorLookup(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return CoordinatorLookup(ErrorCode.NONE, leader.id, endpoint.host, endpoint.port)


def error_response(ctx: Context, request: FindCoordinatorRequest, error: ErrorCode) -> FindCoordinatorResponse:
    if ctx.api_version < BATCH_FROM:
        return FindCoordinatorResponse(error_code=error, error_message=error.name, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key=key, node_id=-1, host="", port=-1, error_code=error, error_message=error.name
            )
            for key in request.coordinator_keys
        ]
    )


API = Api(
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    handle,
    error_response=error_response,
    slices=Slices("coordinator_keys", "coordinators"),
)
