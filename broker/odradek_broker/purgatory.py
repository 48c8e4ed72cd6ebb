"""Operations that wait for partitions to move on: fetches for bytes, produces and coordinators for the high watermark.

Owns the lists of waiters and the moment at which they are looked at again. Leaves what an operation waits for to the
operation (`attempt`), and time to `timers`. Kafka's DelayedOperationPurgatory without threads: a partition that changed
marks its waiters, and all marked ones are tried once, when the request that changed it has been answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from odradek_broker.deferred import Deferred
from odradek_broker.timers import TimerHandle, Timers

T = TypeVar("T")


class Waiter(Protocol):
    """An operation that a changed partition lets try again: a `DelayedOperation`, or a `WatchedPartition`."""

    def try_complete(self) -> None: ...


class Watchers:
    """The waiters of one partition in the order of their arrival; falsy without any, which is all that the hot path
    asks."""

    __slots__ = ("operations",)

    def __init__(self) -> None:
        # A dict, because operations complete in the order in which they came.
        self.operations: dict[Waiter, None] = {}

    def __bool__(self) -> bool:
        return bool(self.operations)


class DelayedOperation(Generic[T]):
    """One wait. `attempt()` answers the result, or None to wait on; `expire()` gives the result at the deadline."""

    __slots__ = ("all", "attempt", "deferred", "expire", "timer", "watched")

    def __init__(
        self,
        all_waiting: dict[DelayedOperation[Any], None],
        watched: list[Watchers],
        attempt: Callable[[], T | None],
        expire: Callable[[], T],
    ) -> None:
        self.all = all_waiting
        self.watched = watched
        self.attempt = attempt
        self.expire = expire
        self.deferred: Deferred[T] = Deferred(self.leave)
        self.timer: TimerHandle | None = None

    def leave(self) -> None:
        self.all.pop(self, None)
        for watchers in self.watched:
            watchers.operations.pop(self, None)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def try_complete(self) -> None:
        if not self.deferred.done:
            try:
                result = self.attempt()
            except Exception as error:
                self.leave()
                self.deferred.fail(error)
                return
            if result is not None:
                self.leave()
                self.deferred.complete(result)

    def time_out(self) -> None:
        if not self.deferred.done:
            self.leave()
            try:
                result = self.expire()
            except Exception as error:
                self.deferred.fail(error)
                return
            self.deferred.complete(result)


class Purgatory:
    """All waits of one broker."""

    __slots__ = ("_marked", "_scheduled", "_timers", "_waiting")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: dict[DelayedOperation[Any], None] = {}
        self._marked: dict[Waiter, None] = {}
        self._scheduled = False

    def wait(
        self,
        watched: Iterable[Watchers],
        attempt: Callable[[], T | None],
        expire: Callable[[], T],
        timeout_ms: int,
    ) -> Deferred[T]:
        """Wait until `attempt` answers something, tried after each change of a watched partition, or until the timeout.

        The caller has tried once already: the first attempt is made at the first change."""
        operation = DelayedOperation(self._waiting, list(watched), attempt, expire)
        self._waiting[operation] = None
        for watchers in operation.watched:
            watchers.operations[operation] = None
        operation.timer = self._timers.call_later(timeout_ms, operation.time_out)
        return operation.deferred

    def expire_all(self) -> None:
        """Shutdown: every wait ends as if its time were over."""
        for operation in list(self._waiting):
            operation.time_out()

    def __len__(self) -> int:
        return len(self._waiting)

    def changed(self, watchers: Watchers) -> None:
        """A partition moved on. Call it only when someone waits; attempts are made soon, not now."""
        self._marked.update(watchers.operations)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._timers.call_soon(self._try_marked)

    def _try_marked(self) -> None:
        waiting: Iterator[Waiter] = iter(())
        try:
            # Once more for those who are marked by the first ones: what is marked later has its turn later.
            for _ in range(2):
                marked, self._marked = self._marked, {}
                waiting = iter(marked)
                for operation in waiting:
                    operation.try_complete()
        except BaseException:
            # Whoever was given a result could not deal with it; the others wait all the same.
            self._marked = {**dict.fromkeys(waiting), **self._marked}
            raise
        finally:
            self._scheduled = False
            if self._marked:
                self._schedule()
