"""The follower's half of an incremental fetch session (KIP-227): which partitions a request must mention.

Owns what the leader was told of each partition, the session's id and epoch. The leader's half is `fetch_session`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek_broker.core.fetch_session import EPOCH_MAX, INITIAL_EPOCH, NO_SESSION
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

    __slots__ = ("_epoch", "_id", "_told")

    def __init__(self) -> None:
        self._told: dict[Key, Position] = {}
        self._id = NO_SESSION
        self._epoch = INITIAL_EPOCH

    def next(self, positions: Mapping[Key, Position]) -> SessionRequest:
        """The request for exactly these partitions."""
        if self._epoch == INITIAL_EPOCH:
            self._told = dict(positions)
            return SessionRequest(self._id, self._epoch, list(positions.items()))
        told = self._told
        request = SessionRequest(self._id, self._epoch)
        for key, position in positions.items():
            if told.get(key) != position:
                told[key] = position
                request.wanted.append((key, position))
        if len(told) > len(positions):
            request.forgotten = [key for key in told if key not in positions]
            for key in request.forgotten:
                del told[key]
        return request

    def answered(self, session_id: int) -> None:
        """The request succeeded; the leader has a session with this id, or none (0)."""
        if session_id == NO_SESSION:
            self.begin_anew()
        else:
            self._id = session_id
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def ask_again(self, keys: Iterable[Key]) -> None:
        """Mention these in the next request even if nothing about them changes."""
        for key in keys:
            self._told.pop(key, None)

    def begin_anew(self) -> None:
        """The next request is a full one. An id that the leader still holds is given up with it."""
        self._told.clear()
        self._epoch = INITIAL_EPOCH
