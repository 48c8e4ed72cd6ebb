"""Delayed operations: fetches that wait for bytes, produces and coordinators that wait for the high watermark.

Owns the watchers of each partition and the moment at which they are tried again. Leaves the condition to the operation
(`attempt`) and time to `timers`. This is Kafka's DelayedOperationPurgatory without threads: a partition that changes
marks its watchers, and each marked operation is tried once, after the response to the request that changed the
partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, Protocol, TypeVar

from odradek_broker.deferred import Deferred
from odradek_broker.timers import TimerHandle, Timers

T = TypeVar("T")


class Waiter(Protocol):
    """An operation that is tried when a partition changes: a `DelayedOperation` or an `IdleWatch`."""

    def try_complete(self) -> None: ...


class Watchers:
    """The operations that watch one partition, in the order of their arrival. Hot paths check only whether there are
    any."""

    __slots__ = ("operations",)

    def __init__(self) -> None:
        # A dict, because operations complete in the order in which they came.
        self.operations: dict[Waiter, None] = {}

    def __bool__(self) -> bool:
        return bool(self.operations)


class DelayedOperation(Generic[T]):
    """`attempt()` returns the result, or None while the condition does not hold; `on_expiration()` returns the result
    at the deadline."""

    __slots__ = ("_all_waiting", "attempt", "deferred", "on_expiration", "timer", "watched")

    def __init__(
        self,
        all_waiting: dict[DelayedOperation[Any], None],
        watched: list[Watchers],
        attempt: Callable[[], T | None],
        on_expiration: Callable[[], T],
    ) -> None:
        self._all_waiting = all_waiting
        self.watched = watched
        self.attempt = attempt
        self.on_expiration = on_expiration
        self.deferred: Deferred[T] = Deferred(self.leave)
        self.timer: TimerHandle | None = None

    def leave(self) -> None:
        self._all_waiting.pop(self, None)
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

    def expire(self) -> None:
        if not self.deferred.done:
            self.leave()
            try:
                result = self.on_expiration()
            except Exception as error:
                self.deferred.fail(error)
                return
            self.deferred.complete(result)


class Purgatory:
    """All delayed operations of one broker."""

    __slots__ = ("_marked", "_scheduled", "_timers", "_waiting")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: dict[DelayedOperation[Any], None] = {}
        self._marked: dict[Waiter, None] = {}
        self._scheduled = False

    def watch(
        self,
        watched: Iterable[Watchers],
        attempt: Callable[[], T | None],
        on_expiration: Callable[[], T],
        timeout_ms: int,
    ) -> Deferred[T]:
        """Try `attempt` after each change of a watched partition, until it returns a result or the timeout is over.

        The caller has already tried it once; the first attempt here follows the next change."""
        operation = DelayedOperation(self._waiting, list(watched), attempt, on_expiration)
        self._waiting[operation] = None
        for watchers in operation.watched:
            watchers.operations[operation] = None
        operation.timer = self._timers.call_later(timeout_ms, operation.expire)
        return operation.deferred

    def expire_all(self) -> None:
        """Complete every operation as at its deadline, because the broker shuts down."""
        for operation in list(self._waiting):
            operation.expire()

    def __len__(self) -> int:
        return len(self._waiting)

    def check_and_complete(self, watchers: Watchers) -> None:
        """Try the operations that watch a partition, because it changed. They are tried soon, not within this call.

        Call it only if there are any."""
        self._marked.update(watchers.operations)
        if not self._scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._scheduled = True
        self._timers.call_soon(self._try_marked)

    def _try_marked(self) -> None:
        waiting: Iterator[Waiter] = iter(())
        try:
            # The second round is for operations that the first round marked; those marked later are tried later.
            for _ in range(2):
                marked, self._marked = self._marked, {}
                waiting = iter(marked)
                for operation in waiting:
                    operation.try_complete()
        except BaseException:
            # The listener of one operation failed; the others are tried in the next turn.
            self._marked = {**dict.fromkeys(waiting), **self._marked}
            raise
        finally:
            self._scheduled = False
            if self._marked:
                self._schedule()
