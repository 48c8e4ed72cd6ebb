"""One member of a classic group.

Owns the member's timeouts, supported protocols, assignment and pending requests. Leaves counting members to
`classic_group`.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from odradek_broker.coordination.core.step import DeferredResponse

Protocols = tuple[tuple[str, bytes], ...]
"""Protocol names with their metadata, the preferred one first."""


@dataclass(slots=True, kw_only=True)
class ClassicGroupMember:
    """A member that has joined. A pending member id is not a member yet."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    """Whether its first JoinGroup is pending: the client does not know its member id and sends no heartbeats."""
    awaiting_join: DeferredResponse | None = field(default=None, compare=False)
    awaiting_sync: DeferredResponse | None = field(default=None, compare=False)

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol that it supports."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"{self.member_id} does not support {protocol}")

    def vote(self, candidates: Collection[str]) -> str:
        """Return the member's preferred protocol among those that all members support."""
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def is_session_paused(self) -> bool:
        """Whether the session does not expire: while its JoinGroup or SyncGroup is pending, a member sends no
        heartbeats. The first JoinGroup of a new member can expire."""
        return not self.is_new and (self.awaiting_join is not None or self.awaiting_sync is not None)
