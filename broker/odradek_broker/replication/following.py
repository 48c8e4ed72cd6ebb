"""Which leader each partition is fetched from, and by which of this broker's fetchers.

Owns the fetchers: `num.replica.fetchers` for each leader, made when there is something to fetch. Who leads comes from
metadata deltas (`broker.py`); fetching is the fetchers' (`fetcher.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_broker.replication.fetcher import Fetcher

if TYPE_CHECKING:
    from odradek_broker.broker import Broker
    from odradek_broker.partition import Partition


class Following:
    """All that this broker follows."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._by_partition: dict[Partition, Fetcher] = {}

    def __len__(self) -> int:
        return len(self._by_partition)

    def follow(self, partition: Partition, leader: int) -> None:
        """Fetch from this leader, in the partition's present leader epoch."""
        spread = int.from_bytes(partition.topic_id[-4:]) + partition.index
        number = spread % self._broker.config.integer("num.replica.fetchers")
        fetcher = self._fetchers.get((leader, number))
        if self._by_partition.get(partition) not in (None, fetcher):
            self.leave(partition)
        if fetcher is None:
            fetcher = self._fetchers[leader, number] = Fetcher(self._broker, leader, number)
        self._by_partition[partition] = fetcher
        fetcher.add(partition)

    def leave(self, partition: Partition) -> None:
        """Fetch it no more; nothing happens if it is not followed."""
        fetcher = self._by_partition.pop(partition, None)
        if fetcher is not None:
            fetcher.remove(partition)
            if not len(fetcher):
                del self._fetchers[fetcher.leader, fetcher.number]
                fetcher.close()

    def close(self) -> None:
        """Stop fetching, at once."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._by_partition.clear()
