"""How many bytes replication may move per second, of which partitions (KIP-73).

Owns the rate over Kafka's windows and the list of throttled replicas. Pure: the time is an argument. Where it is asked
is the leader's and the follower's affair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

UNLIMITED = (1 << 63) - 1
ALL = "*"


class Rate:
    """Bytes per second over the last windows, as Kafka's SimpleRate: over one window at least."""

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
    """One direction of replication at one broker. `is_throttled` is free while no topic has throttled replicas."""

    __slots__ = ("_rate", "_topics", "bytes_per_second")

    def __init__(self, windows: int, window_ms: int) -> None:
        self._rate = Rate(windows, window_ms)
        self._topics: dict[str, frozenset[int] | None] = {}
        self.bytes_per_second = UNLIMITED

    def configure(self, topic: str, replicas: str, broker: int) -> None:
        """`replicas` as in `…replication.throttled.replicas`: "partition:broker" pairs, "*" for all, or nothing."""
        words = {word for part in replicas.split(",") if (word := part.strip())}
        if ALL in words:
            self._topics[topic] = None
            return
        pairs = [word.partition(":") for word in words]
        mine = frozenset(int(partition) for partition, _, where in pairs if where == str(broker))
        if mine:
            self._topics[topic] = mine
        else:
            self._topics.pop(topic, None)

    def is_throttled(self, topic: str, partition: int) -> bool:
        if not self._topics or topic not in self._topics:
            return False
        throttled = self._topics[topic]
        return throttled is None or partition in throttled

    def record(self, count: int, now_ms: int) -> None:
        """So many bytes of throttled partitions were moved."""
        self._rate.record(count, now_ms)

    def is_exceeded(self, now_ms: int) -> bool:
        return self._rate.per_second(now_ms) > self.bytes_per_second


def rate_of(name: str, own: Mapping[str, str], of_all: Mapping[str, str]) -> int:
    """A broker's dynamic rate; bytes per second."""
    return int(own.get(name) or of_all.get(name) or UNLIMITED)
