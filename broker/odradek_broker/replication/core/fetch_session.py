"""Incremental fetch sessions (KIP-227): a client names all its partitions once, and then only those that change.

Owns the sessions of one broker, their epochs, the choice of partitions for a response, and evictions when the cache is
full. Leaves reading to the Fetch handler. The time is an argument, ids come from a given function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from odradek_wire.errors import ErrorCode

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
EPOCH_MAX = 0x7FFF_FFFF
UNKNOWN_HIGH_WATERMARK = 0x7FFF_FFFF_FFFF_FFFF

PartitionKey = tuple[str | bytes, int]
"""Topic name (below version 13) or topic id, and partition."""


@dataclass(slots=True)
class FetchedPartition:
    """A partition of a session: the client's position, and the offsets in the last response (Kafka's
    CachedPartition)."""

    topic: str | bytes
    index: int
    fetch_offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int
    known_high_watermark: int = UNKNOWN_HIGH_WATERMARK
    """The follower's high watermark (from version 18 on)."""
    last_sent_high_watermark: int = -1
    last_sent_log_start_offset: int = -1

    def record_response(
        self, high_watermark: int, log_start_offset: int, error: int, has_more: bool, *, diverging: bool = False
    ) -> bool:
        """Record the offsets of a response; return whether an incremental response must contain this partition.

        After an error the next response contains the partition, too, so that the client learns that the error is
        over. The same holds if the response has a diverging epoch: a follower ignores the high watermark of a
        response that has one."""
        included = has_more
        if self.last_sent_high_watermark != high_watermark:
            self.last_sent_high_watermark = high_watermark
            included = True
        if self.last_sent_log_start_offset != log_start_offset:
            self.last_sent_log_start_offset = log_start_offset
            included = True
        if error or diverging:
            self.last_sent_high_watermark = -1
            included = True
        return included


class IdlePartitionsPort(Protocol):
    """The partitions of a session that a Fetch can skip, because they have not changed (`idle_partitions`)."""

    def activate(self, key: PartitionKey) -> None:
        """Make the partition active because a request names it or the session forgets it. Idempotent."""

    def end(self) -> None:
        """End the watches of all partitions, because the session is closed."""


class FetchSession:
    """One client's partitions, in the order of reading: a partition whose records were sent goes to the end."""

    __slots__ = ("active", "by_id", "created_ms", "epoch", "id", "idle", "partitions", "privileged", "used_ms")

    def __init__(self, session_id: int, by_id: bool, privileged: bool, now_ms: int) -> None:
        self.id = session_id
        self.by_id = by_id
        self.privileged = privileged
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = 1
        self.partitions: dict[PartitionKey, FetchedPartition] = {}
        self.active = self.partitions
        """The partitions that a Fetch reads: all, or, in a follower's session, those that are not idle."""
        self.idle: IdlePartitionsPort | None = None

    def keep_idle_apart(self, idle: IdlePartitionsPort) -> None:
        """Let `idle` take partitions out of `active` from now on."""
        self.idle = idle
        self.active = dict(self.partitions)

    def end(self) -> None:
        """End the watches of idle partitions, because the session is closed."""
        if self.idle is not None:
            self.idle.end()

    def update(self, wanted: Iterable[FetchedPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Add and change partitions, then forget some. A changed one keeps the offsets of its last response."""
        partitions = self.partitions
        for partition in wanted:
            key = (partition.topic, partition.index)
            known = partitions.get(key)
            if self.idle is not None:
                self.idle.activate(key)
            if known is None:
                partitions[key] = self.active[key] = partition
            else:
                known.fetch_offset = partition.fetch_offset
                known.max_bytes = partition.max_bytes
                known.leader_epoch = partition.leader_epoch
                known.last_fetched_epoch = partition.last_fetched_epoch
                known.log_start_offset = partition.log_start_offset
                known.known_high_watermark = partition.known_high_watermark
        for key in forgotten:
            if self.idle is not None:
                self.idle.activate(key)
                self.active.pop(key, None)
            partitions.pop(key, None)

    def move_to_end(self, partition: FetchedPartition) -> None:
        """Let the next Fetch read the other partitions first, because the response has records of this one."""
        key = (partition.topic, partition.index)
        if self.active.pop(key, None) is not None:
            self.active[key] = partition


class FetchSessions:
    """The sessions of one broker: at most `slots` (max.incremental.fetch.session.cache.slots)."""

    __slots__ = ("_eviction_ms", "_random_id", "_sessions", "_slots")

    def __init__(self, slots: int, eviction_ms: int, random_id: Callable[[], int]) -> None:
        """`random_id` returns a non-negative int32."""
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._random_id = random_id
        # In the order of their last use.
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def resume(self, session_id: int, epoch: int, by_id: bool, now_ms: int) -> FetchSession | ErrorCode:
        """Return the session of an incremental request, advanced to its next epoch, or an error."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        session.used_ms = now_ms
        del self._sessions[session_id]
        self._sessions[session_id] = session
        return session

    def create(
        self, wanted: Iterable[FetchedPartition], size: int, by_id: bool, privileged: bool, now_ms: int
    ) -> FetchSession | None:
        """Return a new session for a full request; None if the cache is full, so that the client sends full
        requests."""
        if len(self._sessions) >= self._slots and not self._evict(size, privileged, now_ms):
            return None
        session_id = self._random_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._random_id()
        session = FetchSession(session_id, by_id, privileged, now_ms)
        session.update(wanted, ())
        self._sessions[session_id] = session
        return session

    def remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.end()

    def clear(self) -> None:
        for session_id in list(self._sessions):
            self.remove(session_id)

    def _evict(self, size: int, privileged: bool, now_ms: int) -> bool:
        """Evict a session as Kafka does: one unused for `eviction_ms`, else the smallest that was created before that
        time and is not larger than the new one. The sessions of consumers count as smaller than those of followers
        (privileged); a follower also evicts younger sessions of consumers. Return whether one was evicted."""
        if not self._sessions:
            return False
        least_recently_used = next(iter(self._sessions.values()))
        if now_ms - least_recently_used.used_ms > self._eviction_ms:
            self.remove(least_recently_used.id)
            return True
        candidates = [
            (session.privileged, len(session.partitions), session.id)
            for session in self._sessions.values()
            if now_ms - session.created_ms > self._eviction_ms or (privileged and not session.privileged)
        ]
        if not candidates:
            return False
        victim = min(candidates)
        if (privileged, size) < victim[:2]:
            return False
        self.remove(victim[2])
        return True
