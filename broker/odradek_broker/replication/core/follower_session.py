"""The follower's half of an incremental fetch session (KIP-227): which partitions a request must mention.

Owns what the leader was told of each partition, the session's id and epoch. A request costs what has changed, not what
is followed. The leader's half is `fetch_session`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from odradek_broker.replication.core.fetch_session import EPOCH_MAX, INITIAL_EPOCH, NO_SESSION
from odradek_wire.uuid import Uuid

Key = tuple[Uuid, int]


class Position(NamedTuple):
    """What a follower asks of one partition."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int
    high_watermark: int


@dataclass(slots=True)
class SessionRequest:
    """What the next request says: who is asked for anew or differently, who is asked for no more."""

    session_id: int
    session_epoch: int
    wanted: list[tuple[Key, Position]] = field(default_factory=list)
    forgotten: list[Key] = field(default_factory=list)


class FollowerSession:
    """One connection's session; begins anew whenever the leader forgets it or the connection ends."""

    __slots__ = ("_changed", "_epoch", "_forgotten", "_id", "_wanted")

    def __init__(self) -> None:
        self._wanted: dict[Key, Position] = {}
        self._changed: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH

    def __len__(self) -> int:
        return len(self._wanted)

    def want(self, key: Key, position: Position) -> None:
        """Ask for this partition, from here on."""
        if self._wanted.get(key) != position:
            self._wanted[key] = position
            self._changed[key] = None
            self._forgotten.pop(key, None)

    def leave(self, key: Key) -> None:
        """Ask for it no more; nothing happens if it is not asked for."""
        if self._wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def asked(self, key: Key) -> Position | None:
        """What the last request asked of it, as long as nothing was wanted or left since."""
        return self._wanted.get(key)

    def next(self) -> SessionRequest:
        """The request for exactly the partitions that are wanted."""
        wanted = self._wanted
        if self._epoch == INITIAL_EPOCH:
            request = SessionRequest(self._id, self._epoch, list(wanted.items()))
        else:
            mentioned = [(key, wanted[key]) for key in self._changed]
            request = SessionRequest(self._id, self._epoch, mentioned, list(self._forgotten))
        self._changed.clear()
        self._forgotten.clear()
        return request

    def answered(self, session_id: int) -> None:
        """The request succeeded; the leader has a session with this id, or none (0)."""
        if session_id == NO_SESSION:
            self.begin_anew()
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def begin_anew(self) -> None:
        """The next request is a full one. An id that the leader still holds is given up with it."""
        self._epoch = INITIAL_EPOCH
