"""A deferred response: a handler returns one when a request has to wait.

Lighter than a future: completing it calls the connection directly, without a turn of the event loop. A coroutine can
await it like a future. Leaves timeouts to `timers` and the conditions to `purgatory`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Deferred(Generic[T]):
    """A response that is completed once, with a value or an exception, or cancelled, because its client has
    disconnected."""

    __slots__ = ("_listener", "done", "error", "on_cancel", "value")

    def __init__(self, on_cancel: Callable[[], None] | None = None) -> None:
        self.done = False
        self.value: T | None = None
        self.error: BaseException | None = None
        self.on_cancel = on_cancel
        self._listener: Callable[[Deferred[T]], None] | None = None

    def complete(self, value: T) -> None:
        """Deliver the value; later completions are ignored, since a timeout and an event may race."""
        if not self.done:
            self.done = True
            self.value = value
            self._deliver()

    def fail(self, error: BaseException) -> None:
        if not self.done:
            self.done = True
            self.error = error
            self._deliver()

    def cancel(self) -> None:
        """Cancel the response: call `on_cancel`, so that the operation leaves its queues. The listener is not
        called."""
        if not self.done:
            self.done = True
            self.error = asyncio.CancelledError()
            if self.on_cancel is not None:
                self.on_cancel()

    def when_done(self, listener: Callable[[Deferred[T]], None]) -> None:
        """Call `listener` on completion, or immediately if that was before. One listener only."""
        assert self._listener is None, "a deferred response has one reader"
        self._listener = listener
        if self.done:
            self._deliver()

    def result(self) -> T:
        assert self.done
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # T may itself be optional

    def map(self, function: Callable[[T], R]) -> Deferred[R]:
        """Return a deferred response that completes with `function(value)`.

        It fails with this one's error, or with the exception that `function` raises. Cancelling it cancels this one."""
        mapped: Deferred[R] = Deferred(self.cancel)

        def complete(done: Deferred[T]) -> None:
            if done.error is not None:
                return mapped.fail(done.error)
            try:
                value = function(done.result())
            except Exception as error:
                return mapped.fail(error)
            return mapped.complete(value)

        self.when_done(complete)
        return mapped

    def then(self, step: Callable[[T], R | Deferred[R]]) -> Deferred[R]:
        """Return a deferred response that completes with the result of `step(value)`, or as that result completes.

        As `map`, except that `step` may have effects and runs even if the client disconnects first: a cancellation is
        passed to the deferred response that `step` returns, not to this one."""
        following: Deferred[R] = Deferred()

        def follow(done: Deferred[T]) -> None:
            if done.error is not None:
                return following.fail(done.error)
            try:
                outcome = step(done.result())
            except Exception as error:
                return following.fail(error)
            return following.follow(outcome)

        self.when_done(follow)
        return following

    def follow(self, outcome: T | Deferred[T]) -> None:
        """Complete with the value, or as the other deferred response does; a cancellation is passed to that one."""
        if not isinstance(outcome, Deferred):
            self.complete(outcome)
        elif self.done:  # the client disconnected
            outcome.cancel()
        else:
            self.on_cancel = outcome.cancel
            outcome.when_done(self._copy)

    def _copy(self, outcome: Deferred[T]) -> None:
        if outcome.error is not None:
            self.fail(outcome.error)
        else:
            self.complete(outcome.result())

    def __await__(self) -> Generator[object, None, T]:
        if not self.done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_done(lambda _: None if future.done() else future.set_result(None))
            try:
                yield from future
            except asyncio.CancelledError:
                self.cancel()
                raise
        return self.result()

    def _deliver(self) -> None:
        if self._listener is not None:
            self._listener(self)
