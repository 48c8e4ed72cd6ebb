"""One member of a classic group.

Owns what the coordinator knows of a member: its timeouts, the protocols that it supports, its assignment, and the
request of its that waits. Leaves the counting over members to `group`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from odradek_broker.coordination.core.step import Token

Protocols = tuple[tuple[str, bytes], ...]
"""Protocol names with their metadata, the preferred one first."""


@dataclass(slots=True)
class ClassicGroupMember:
    """A member that has joined. A member id that was only given out is not a member yet."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """Until its first join is answered it knows no member id, so it sends no heartbeats and waiting does not keep
    it."""
    join: Token | None = field(default=None, compare=False)
    sync: Token | None = field(default=None, compare=False)

    def metadata(self, protocol: str | None) -> bytes:
        """What the member told about itself for this protocol, which it must support."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"{self.member_id} does not support {protocol}")

    def vote(self, candidates: Collection[str]) -> str:
        """The member's favourite among protocols that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def keeps_session_by_waiting(self) -> bool:
        """A member with a request in our hands cannot send heartbeats and need not."""
        return not self.is_new and (self.join is not None or self.sync is not None)
