"""JoinGroup (key 11): a member asks to take part in the next generation of its group; the answer comes with it.

v0 has no rebalance timeout, v4 makes new members fetch an id first (KIP-394), v5 knows static members (KIP-345), v7
names the protocol type (KIP-559), v9 lets a returning static leader skip the assignment (KIP-814). Serves the classic
protocol.
"""

from __future__ import annotations

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.deferred import Deferred
from odradek_broker.groups.core.group_step import GroupClient, join_error
from odradek_broker.security.authorizer import Operation
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

NULL_PROTOCOL_NAME_FROM = 7


def handle(ctx: Context, request: JoinGroupRequest) -> JoinGroupResponse | Deferred[JoinGroupResponse]:
    if not ctx.may_group(Operation.READ, request.group_id):
        return failed(ctx, request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    caller = GroupClient(
        client_id=ctx.client_id or "",
        client_host=java_host(ctx.address),
        api_version=ctx.api_version,
        random_id="" if request.member_id else random_id(ctx.broker.randbytes(16)),
    )
    answer = ctx.broker.groups.join(request, caller)
    if not isinstance(answer, Deferred):
        return _for_version(answer, ctx.api_version)
    if ctx.api_version >= NULL_PROTOCOL_NAME_FROM:
        return answer
    return answer.map(lambda joined: _for_version(joined, ctx.api_version))


def failed(ctx: Context, request: JoinGroupRequest, error: ErrorCode) -> JoinGroupResponse:
    return _for_version(join_error(error), ctx.api_version)


def random_id(data: bytes) -> str:
    """A random UUID (version 4) in its usual spelling: the part of a member id that makes it unique."""
    number = int.from_bytes(data, "big") & ~(0xF << 76) & ~(0x3 << 62) | 0x4 << 76 | 0x2 << 62
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def java_host(address: str) -> str:
    """An address as Java prints it, which is how it stands in group metadata: `/127.0.0.1`, `/0:0:0:0:0:0:0:1`."""
    if ":" not in address:
        return f"/{address}"
    head, _, tail = address.partition("%")[0].partition("::")
    left = [part for part in head.split(":") if part]
    right = [part for part in tail.split(":") if part]
    zeros = ["0"] * (8 - len(left) - len(right)) if "::" in address else []
    return "/" + ":".join(f"{int(part, 16):x}" for part in [*left, *zeros, *right])


def _for_version(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    if response.protocol_name is None and version < NULL_PROTOCOL_NAME_FROM:
        response.protocol_name = ""
    return response


API = Api(JoinGroupRequest, JoinGroupResponse, handle, failed=failed)
