"""SyncGroup (key 14): the group leader sends the assignment of all members, and each member receives its own.

Versions: v3 has static members (KIP-345), v5 names protocol type and protocol name (KIP-559).
Behaviour: the response comes when the group leader's assignment is replicated.
Differences from Kafka: when a member sends another SyncGroup, its pending one gets REBALANCE_IN_PROGRESS; Kafka never
responds to that.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.group_client import group_client
from odradek_broker.deferred import Deferred
from odradek_broker.groups.core.classic_kind import SYNC_GROUP
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PROTOCOL_REQUIRED_FROM = 5


def handle(ctx: Context, request: SyncGroupRequest) -> SyncGroupResponse | Deferred[SyncGroupResponse]:
    named = request.protocol_type is not None and request.protocol_name is not None
    if ctx.api_version >= PROTOCOL_REQUIRED_FROM and not named:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if not ctx.may_group(Operation.READ, request.group_id):
        return SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    return ctx.broker.group_coordinator.handle(SYNC_GROUP, request, group_client(ctx))


API = Api(SyncGroupRequest, SyncGroupResponse, handle)
