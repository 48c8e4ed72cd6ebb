"""FindCoordinator (key 10): which broker coordinates a group or a transactional id?

v1 knows transactional ids, v4 asks for many at once (KIP-699), v6 knows share groups (KIP-932). The first question
creates `__consumer_offsets`. Transactional ids have no coordinator yet; share groups are not served.
"""

from __future__ import annotations

from collections.abc import Awaitable
from enum import IntEnum
from typing import NamedTuple

from odradek_broker.api import Api
from odradek_broker.authorizer import Operation, ResourceType
from odradek_broker.auto_create import CONSUMER_OFFSETS, ensure_internal_topic
from odradek_broker.context import Context
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

BATCH_FROM = 4


class CoordinatorType(IntEnum):
    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


class Coordinator(NamedTuple):
    """Where a key is coordinated, or the error why that is not known."""

    error: ErrorCode
    node_id: int = -1
    host: str = ""
    port: int = -1


# A client sees these texts: Kafka's versions before 4 answer with the error's own.
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
    groups = request.key_type == CoordinatorType.GROUP
    if groups and CONSUMER_OFFSETS not in ctx.broker.image.topics:
        return _handle_first(ctx, request)
    return _answer(ctx, request)


async def _handle_first(ctx: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Kafka answers COORDINATOR_NOT_AVAILABLE while it creates the topic. Ours is quick: nobody need ask again."""
    keys = request.coordinator_keys if ctx.api_version >= BATCH_FROM else [request.key]
    if any(ctx.may_group(Operation.DESCRIBE, key) for key in keys):
        await ensure_internal_topic(ctx.broker, CONSUMER_OFFSETS)
    return _answer(ctx, request)


def _answer(ctx: Context, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    if ctx.api_version >= BATCH_FROM:
        return FindCoordinatorResponse(
            coordinators=[_entry(ctx, request.key_type, key) for key in request.coordinator_keys]
        )
    error, node_id, host, port = _find(ctx, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=error, error_message=_message(error), node_id=node_id, host=host, port=port
    )


def _entry(ctx: Context, key_type: int, key: str) -> FindCoordinatorResponse.Coordinator:
    error, node_id, host, port = _find(ctx, key_type, key)
    # Only a key type that nobody knows fails the whole request in Kafka, and thereby gets a text.
    known = 0 <= key_type < len(CoordinatorType)
    return FindCoordinatorResponse.Coordinator(
        key=key, node_id=node_id, host=host, port=port, error_code=error, error_message="" if known else _message(error)
    )


def _find(ctx: Context, key_type: int, key: str) -> Coordinator:
    match key_type:
        case CoordinatorType.GROUP:
            if not ctx.may_group(Operation.DESCRIBE, key):
                return Coordinator(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            return _find_group(ctx, key)
        case CoordinatorType.TRANSACTION:
            if not ctx.may(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, key):
                return Coordinator(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
            return Coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        case _:
            return Coordinator(ErrorCode.INVALID_REQUEST)


def _find_group(ctx: Context, group_id: str) -> Coordinator:
    image = ctx.broker.image
    partition = image.partition(CONSUMER_OFFSETS, ctx.broker.groups.partition_of(group_id))
    leader = None if partition is None else image.brokers.get(partition.leader)
    endpoint = None if leader is None or leader.fenced else leader.endpoint(ctx.listener)
    if leader is None or endpoint is None:
        return Coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(ErrorCode.NONE, leader.id, endpoint.host, endpoint.port)


def _message(error: ErrorCode) -> str:
    return MESSAGES[error]


def failed(ctx: Context, request: FindCoordinatorRequest, error: ErrorCode) -> FindCoordinatorResponse:
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
    failed=failed,
    notes="transactional ids have no coordinator yet, share groups are refused",
)
