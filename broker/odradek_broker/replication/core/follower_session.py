"""The follower's half of an incremental fetch session (KIP-227), Kafka's FetchSessionHandler.

Owns the positions that were sent to the leader, and the session's id and epoch. A request has only the partitions whose
position has changed. The leader's half is `fetch_session`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from odradek_broker.replication.core.fetch_session import EPOCH_MAX, INITIAL_EPOCH, NO_SESSION
from odradek_wire.uuid import Uuid

Key = tuple[Uuid, int]


class Position(NamedTuple):
    """The offsets and epochs of one partition that a follower sends in a Fetch."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int
    high_watermark: int


@dataclass(slots=True)
class SessionRequest:
    """The partitions of the next request: those added or changed, and those to forget."""

    session_id: int
    session_epoch: int
    wanted: list[tuple[Key, Position]] = field(default_factory=list)
    forgotten: list[Key] = field(default_factory=list)


class FollowerSession:
    """The session of one connection; `reset` it when the leader forgets it or the connection ends."""

    __slots__ = ("_changed", "_epoch", "_forgotten", "_id", "_wanted")

    def __init__(self) -> None:
        self._wanted: dict[Key, Position] = {}
        self._changed: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH

    def __len__(self) -> int:
        return len(self._wanted)

    def put(self, key: Key, position: Position) -> None:
        """Add the partition, or change its position."""
        if self._wanted.get(key) != position:
            self._wanted[key] = position
            self._changed[key] = None
            self._forgotten.pop(key, None)

    def remove(self, key: Key) -> None:
        """Remove the partition. Idempotent."""
        if self._wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def position(self, key: Key) -> Position | None:
        """Return the partition's position in the last request, unless it was changed or removed since."""
        return self._wanted.get(key)

    def next(self) -> SessionRequest:
        """Return the next request; with it the leader's session gets exactly the partitions of this one."""
        wanted = self._wanted
        if self._epoch == INITIAL_EPOCH:
            request = SessionRequest(self._id, self._epoch, list(wanted.items()))
        else:
            mentioned = [(key, wanted[key]) for key in self._changed]
            request = SessionRequest(self._id, self._epoch, mentioned, list(self._forgotten))
        self._changed.clear()
        self._forgotten.clear()
        return request

    def handle_response(self, session_id: int) -> None:
        """Continue the session after a successful response with the id of the leader's session, 0 for none."""
        if session_id == NO_SESSION:
            self.reset()
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def reset(self) -> None:
        """Make the next request a full one, which closes a session that the leader still has."""
        self._epoch = INITIAL_EPOCH
