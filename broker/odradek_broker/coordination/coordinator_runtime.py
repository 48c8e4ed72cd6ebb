"""The partitions of one internal topic that this broker leads, and the look-up of the partition of a key.

Owns loading and unloading them as their leader changes, and the interval of their cleanup. Leaves the work of one
partition to the coordinator. Kafka's CoordinatorRuntime.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Generic, Protocol, TypeVar

from odradek_broker.coordination.core.java_hash import partition_for
from odradek_broker.coordination.durable_partition import CoordinatorState
from odradek_broker.timers import TimerHandle, Timers
from odradek_controller.image import ClusterImage
from odradek_wire.errors import ErrorCode


class LedPartition(Protocol):
    """A partition of the internal topic, on its leader."""

    @property
    def state(self) -> CoordinatorState: ...

    def load(self) -> None: ...

    def resign(self) -> None: ...


P = TypeVar("P", bound=LedPartition)


class CoordinatorRuntime(Generic[P]):
    """The partitions of this broker by index. A key is a group id or a transactional id."""

    def __init__(
        self,
        *,
        topic: str,
        new_partition_count: Callable[[], int],
        image: Callable[[], ClusterImage],
        timers: Timers,
        cleanup_interval_ms: Callable[[], int],
        clean_up: Callable[[P], None],
    ) -> None:
        """`new_partition_count` returns the number of partitions that the topic gets when it is created. `clean_up` is
        called for every active partition at the interval."""
        self._topic = topic
        self._new_partition_count = new_partition_count
        self._image = image
        self._timers = timers
        self._cleanup_interval_ms = cleanup_interval_ms
        self._clean_up = clean_up
        self._partitions: dict[int, P] = {}
        self._cleanup: TimerHandle | None = None

    @property
    def partitions(self) -> Collection[P]:
        return self._partitions.values()

    @property
    def active(self) -> list[P]:
        """The partitions that are loaded."""
        return [partition for partition in self._partitions.values() if partition.state is CoordinatorState.ACTIVE]

    def load(self, index: int, partition: P) -> None:
        """Load a partition that this broker has become the leader of. The caller has unloaded it, if it was loaded in
        an older leader epoch."""
        assert index not in self._partitions
        self._partitions[index] = partition
        partition.load()
        if self._cleanup is None:
            self._schedule_cleanup()

    def unload(self, index: int) -> None:
        """Resign from a partition that another broker leads now."""
        partition = self._partitions.pop(index, None)
        if partition is not None:
            partition.resign()

    def close(self) -> None:
        """Resign from every partition: pending requests fail with NOT_COORDINATOR."""
        if self._cleanup is not None:
            self._cleanup.cancel()
            self._cleanup = None
        for index in list(self._partitions):
            self.unload(index)

    def partition_of(self, key: str) -> int:
        """Return the index of the key's partition, also before the topic exists."""
        topic = self._image().topics.get(self._topic)
        return partition_for(key, len(topic.partitions) if topic else self._new_partition_count())

    def find(self, key: str) -> P | ErrorCode:
        """Return the key's partition if this broker leads it and has loaded it, else the error for the client."""
        partition = self._partitions.get(self.partition_of(key))
        if partition is None:
            return ErrorCode.NOT_COORDINATOR
        match partition.state:
            case CoordinatorState.ACTIVE:
                return partition
            case CoordinatorState.LOADING | CoordinatorState.UNCOMMITTED:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            case CoordinatorState.FAILED | CoordinatorState.CLOSED:
                return ErrorCode.NOT_COORDINATOR

    def _schedule_cleanup(self) -> None:
        self._cleanup = self._timers.call_later(self._cleanup_interval_ms(), self._clean_up_all)

    def _clean_up_all(self) -> None:
        for partition in self.active:
            self._clean_up(partition)
        self._schedule_cleanup()
