"""Idle partitions: those of an incremental fetch session that a Fetch can skip, because they have not changed.

Most partitions of a large session are idle, so that a Fetch costs only as much as the active ones.

In a consumer's session every Fetch compares the offsets of each partition (`is_idle_for_consumer`), and all partitions
stay in `FetchSession.active`.

In a follower's session `IdlePartitions` takes idle partitions out of `active`, and no Fetch looks at them:

              a request names the partition
                            |
                            v
    +------------------>  ACTIVE
    |                       |
    |                       |  add(): the follower is in sync, has every record,
    |                       |  and knows the offsets (is_idle_for_follower)
    |                       v
    +--- activate() ----  IDLE  <-------------------------+
    |                       |                             |
    |                       |  try_complete(): the        |  add(): a Fetch finds
    |                       |  partition has changed      |  the partition idle
    |                       |  (its replica_watchers)     |
    |                       v                             |
    +--- activate() ----  ACTIVE, WATCHED  ---------------+

    activate(): a request names the partition, or the session forgets it

While a partition is idle, the leader core counts every Fetch of the session as one that finds the follower caught up
with this partition (`FollowerProgress.idle_session`), so that the follower stays in the ISR. In "active, watched" each
Fetch reads the partition, and every change of the partition tries the waiting Fetch of the session again. The end of
the session ends all watches.

The state is in three places, which change together: `FetchSession.active` (active or not), the watches of
`IdlePartitions` (idle, or active and watched) and `FollowerProgress.idle_session` (idle). Leaves the requests that this
broker sends as a follower to `FollowerSession`.
"""

from __future__ import annotations

from odradek_broker.purgatory import Purgatory, Watchers
from odradek_broker.replication.core.fetch_session import FetchedPartition, FetchSession, PartitionKey
from odradek_broker.replication.core.partition_leader import FollowerProgress
from odradek_broker.replication.partition import Partition
from odradek_log.log import Log


def is_idle_for_consumer(partition: Partition, wanted: FetchedPartition, read_committed: bool) -> bool:
    """Return whether an incremental response can omit the partition: the consumer is at the end, and the offsets have
    not changed since the last response."""
    end = partition.high_watermark
    return not (
        wanted.fetch_offset != (partition.last_stable_offset if read_committed else end)
        or wanted.last_sent_high_watermark != end
        or wanted.last_sent_log_start_offset != partition.log.log_start_offset
        or wanted.leader_epoch not in (-1, partition.leader_epoch)
        or wanted.last_fetched_epoch >= 0
    )


def is_idle_for_follower(partition: Partition, wanted: FetchedPartition, follower: int) -> bool:
    """Return whether the follower is in sync and has every record, and the offsets have not changed since the last
    response: then nothing is sent or recorded until the partition changes."""
    leader, log = partition.leader, partition.log
    return (
        leader is not None
        and follower in leader.isr
        and wanted.fetch_offset == log.log_end_offset
        and _has_the_same_records(log, wanted)
        and wanted.leader_epoch in (-1, partition.leader_epoch)
        and wanted.last_sent_high_watermark == partition.high_watermark <= wanted.known_high_watermark
        and wanted.last_sent_log_start_offset == log.log_start_offset
    )


def _has_the_same_records(log: Log, wanted: FetchedPartition) -> bool:
    """Return whether a follower whose fetch offset is the log end offset has the same records: the epochs after its
    last one have none."""
    epoch = wanted.last_fetched_epoch
    return epoch in (-1, log.leader_epochs.latest) or log.end_offset_for_epoch(epoch) == (epoch, wanted.fetch_offset)


class IdlePartitions:
    """The idle partitions of one follower's session, and those that became active since its last request."""

    def __init__(self, purgatory: Purgatory, session: FetchSession) -> None:
        self.watchers = Watchers()
        """The waiting Fetch of the session, if there is one."""
        self._purgatory = purgatory
        self.session = session
        self._watched: dict[PartitionKey, IdleWatch] = {}

    def __len__(self) -> int:
        return len(self._watched)

    def add(self, key: PartitionKey, partition: Partition, progress: FollowerProgress) -> None:
        """Make an active partition idle."""
        self._end_watch(key)
        self._watched[key] = IdleWatch(self, key, partition, progress)
        del self.session.active[key]

    def activate(self, key: PartitionKey) -> None:
        """Make a partition active because a request names it or the session forgets it. Idempotent."""
        if self._end_watch(key):
            self.session.active[key] = self.session.partitions[key]

    def end(self) -> None:
        """End every watch: the session is closed."""
        for watched in self._watched.values():
            watched.end()
        self._watched.clear()

    def watches(self, key: PartitionKey, watched: IdleWatch) -> bool:
        """Return whether this is the present watch of the partition."""
        return self._watched.get(key) is watched

    def activate_after_change(self, key: PartitionKey) -> None:
        """Make a partition active because it changed. The watch stays: the waiting Fetch of the session may not be
        complete with this change, and must be tried again at the next one."""
        self.session.active[key] = self.session.partitions[key]
        self._purgatory.check_and_complete(self.watchers)

    def _end_watch(self, key: PartitionKey) -> bool:
        watched = self._watched.pop(key, None)
        if watched is not None:
            watched.end()
        return watched is not None


class IdleWatch:
    """An idle partition, or one that became active since the last request, among the watchers of the partition."""

    __slots__ = ("_idle", "_key", "_progress", "_watchers")

    def __init__(
        self, idle: IdlePartitions, key: PartitionKey, partition: Partition, progress: FollowerProgress
    ) -> None:
        self._idle = idle
        self._key = key
        self._watchers = partition.replica_watchers
        self._progress = progress
        self._watchers.operations[self] = None
        progress.become_idle(idle.session)

    def try_complete(self) -> None:
        """Make the partition active, for the session's Fetch to read it. A watch that ended after the purgatory marked
        it does nothing: the session may have forgotten the partition, or have a new watch of it."""
        if not self._idle.watches(self._key, self):
            return
        self._progress.end_idle(self._idle.session)
        self._idle.activate_after_change(self._key)

    def end(self) -> None:
        self._watchers.operations.pop(self, None)
        self._progress.end_idle(self._idle.session)
