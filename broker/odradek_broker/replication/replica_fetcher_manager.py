"""The replica fetcher manager: assigns each followed partition to a fetcher of its leader.

Owns the fetchers, up to `num.replica.fetchers` for each leader, created with their first partition. Leaves the choice
of leaders to metadata deltas (`replica_manager.py`) and fetching to `replica_fetcher.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from odradek_broker.inter_broker.channel import BrokerChannels
from odradek_broker.metadata.broker_state import BrokerState
from odradek_broker.replication.core.replication_quota import ReplicationQuota
from odradek_broker.replication.log_syncer import LogSyncer
from odradek_broker.replication.replica_fetcher import ReplicaFetcher

if TYPE_CHECKING:
    from odradek_broker.replication.partition import Partition


class ReplicaFetcherManager:
    """The fetchers of one broker; `Partition.fetcher` is the partition's own."""

    def __init__(
        self, state: BrokerState, *, channels: BrokerChannels, quota: ReplicationQuota, log_syncer: LogSyncer | None
    ) -> None:
        """`quota` limits the bytes of throttled replicas; `log_syncer` is given if a Fetch waits for the disk."""
        self._state = state
        self._channels = channels
        self._quota = quota
        self._log_syncer = log_syncer
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return sum(len(fetcher) for fetcher in self._fetchers.values())

    def add(self, partition: Partition, leader: int) -> None:
        """Fetch the partition from this leader, in the partition's present leader epoch."""
        spread = int.from_bytes(partition.topic_id[-4:]) + partition.index
        number = spread % self._state.config.integer("num.replica.fetchers")
        fetcher = self._fetchers.get((leader, number))
        if partition.fetcher not in (None, fetcher):
            self.remove(partition)
        if fetcher is None:
            timeout_s = self._state.config.integer("replica.socket.timeout.ms") / 1000
            fetcher = self._fetchers[leader, number] = ReplicaFetcher(
                self._state,
                leader,
                number,
                channel=self._channels.to(leader, f"fetcher-{number}", timeout_s=timeout_s),
                quota=self._quota,
                log_syncer=self._log_syncer,
            )
        partition.fetcher = fetcher
        fetcher.add(partition)

    def remove(self, partition: Partition) -> None:
        """Stop fetching the partition. Idempotent."""
        fetcher, partition.fetcher = partition.fetcher, None
        if fetcher is not None:
            assert isinstance(fetcher, ReplicaFetcher)
            fetcher.remove(partition)
            key = (fetcher.leader, fetcher.number)
            if not len(fetcher) and self._fetchers.get(key) is fetcher:
                del self._fetchers[key]
                self._end(fetcher)

    async def close(self) -> None:
        """Stop fetching; no task is left when this returns."""
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        for fetcher in fetchers:
            self._end(fetcher)
        if self._ending:
            await asyncio.wait(self._ending)

    def _end(self, fetcher: ReplicaFetcher) -> None:
        task = fetcher.close()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
