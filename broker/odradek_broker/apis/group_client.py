"""The client of a request to a group, as the group coordinator needs it."""

from __future__ import annotations

from odradek_broker.apis.context import Context
from odradek_broker.groups.core.group_step import GroupClient


def group_client(ctx: Context, *, new_member: bool = False) -> GroupClient:
    """Return the client of this request. With `new_member`, the coordinator may have to generate a member id."""
    return GroupClient(
        client_id=ctx.client_id or "",
        client_host=java_host(ctx.address),
        api_version=ctx.api_version,
        random_id=random_id(ctx.broker.randbytes(16)) if new_member else "",
    )


def random_id(data: bytes) -> str:
    """Return a random UUID (version 4) as text: the part of a member id that makes it unique."""
    number = int.from_bytes(data, "big") & ~(0xF << 76) & ~(0x3 << 62) | 0x4 << 76 | 0x2 << 62
    digits = f"{number:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def java_host(address: str) -> str:
    """Return an address as Java prints it, and as group metadata has it: `/127.0.0.1`, `/0:0:0:0:0:0:0:1`."""
    if ":" not in address:
        return f"/{address}"
    head, _, tail = address.partition("%")[0].partition("::")
    left = [part for part in head.split(":") if part]
    right = [part for part in tail.split(":") if part]
    zeros = ["0"] * (8 - len(left) - len(right)) if "::" in address else []
    return "/" + ":".join(f"{int(part, 16):x}" for part in [*left, *zeros, *right])
