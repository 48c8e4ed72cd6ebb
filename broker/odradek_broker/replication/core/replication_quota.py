"""Replication quotas: the bytes per second for throttled replicas (KIP-73).

Owns the rate over Kafka's windows and the list of throttled replicas. Leaves enforcement to the leader's and the
follower's Fetch. The time is an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

UNLIMITED = (1 << 63) - 1
ALL = "*"


class Rate:
    """Bytes per second over the last `windows` windows, as Kafka's SimpleRate: divided by one window at least."""

    __slots__ = ("_count", "_samples", "_window_ms")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._count = windows
        self._window_ms = window_ms
        self._samples: deque[list[int]] = deque()

    def record(self, count: int, now_ms: int) -> None:
        self._forget(now_ms)
        if not self._samples or now_ms - self._samples[-1][0] >= self._window_ms:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += count

    def per_second(self, now_ms: int) -> float:
        self._forget(now_ms)
        if not self._samples:
            return 0.0
        elapsed_ms = max(now_ms - self._samples[0][0], self._window_ms)
        return sum(count for _, count in self._samples) * 1000 / elapsed_ms

    def _forget(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= self._count * self._window_ms:
            self._samples.popleft()


class ReplicationQuota:
    """One direction of replication at one broker. `is_throttled` costs almost nothing while no topic has throttled
    replicas."""

    __slots__ = ("_rate", "_topics", "bytes_per_second")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._rate = Rate(windows, window_ms)
        self._topics: dict[str, frozenset[int] | None] = {}
        self.bytes_per_second = UNLIMITED

    def configure(self, topic: str, replicas: str, broker_id: int) -> None:
        """Set the throttled replicas of a topic, as in `leader.replication.throttled.replicas`: pairs
        "partition:broker", "*" for all, or an empty text."""
        words = {word for part in replicas.split(",") if (word := part.strip())}
        if ALL in words:
            self._topics[topic] = None
            return
        pairs = [word.partition(":") for word in words]
        throttled_here = frozenset(int(partition) for partition, _, broker in pairs if broker == str(broker_id))
        if throttled_here:
            self._topics[topic] = throttled_here
        else:
            self._topics.pop(topic, None)

    def is_throttled(self, topic: str, partition: int) -> bool:
        if not self._topics or topic not in self._topics:
            return False
        throttled = self._topics[topic]
        return throttled is None or partition in throttled

    def record(self, count: int, now_ms: int) -> None:
        """Record `count` bytes of throttled partitions."""
        self._rate.record(count, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        return self._rate.per_second(now_ms) > self.bytes_per_second


def rate_of(name: str, own: Mapping[str, str], cluster_wide: Mapping[str, str]) -> int:
    """Return a broker's dynamic rate in bytes per second: its own, else that of all brokers."""
    return int(own.get(name) or cluster_wide.get(name) or UNLIMITED)
