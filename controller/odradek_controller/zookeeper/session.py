"""The client's side of a session: its listeners, and the requests that fail when its connection is lost.

Owns the order of events (DISCONNECTED, then the failed requests; EXPIRED before the CONNECTED of the next session).
Leaves requests, responses and the detection of events to the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from .client import ConnectionLossError, SessionEvent, SessionExpiredError, SessionListener

_T = TypeVar("_T")


def call(callback: Callable[[_T], None], event: _T) -> None:
    """Call a listener or a watch. The loop reports its exception, so that the others get the event, too."""
    try:
        callback(event)
    except Exception as error:
        asyncio.get_running_loop().call_exception_handler(
            {"message": f"a callback for ZooKeeper's event {event} failed", "exception": error}
        )


class Session:
    """The session of a `ZooKeeper` client. Used on the loop only."""

    def __init__(self) -> None:
        self.id = 0
        self.connected = False
        self.closed = False
        self._listeners: list[SessionListener] = []
        self._requests: dict[asyncio.Future[Any], None] = {}
        self._waiting: list[asyncio.Future[None]] = []

    def listen(self, listener: SessionListener) -> Callable[[], None]:
        """As `ZooKeeper.listen`."""

        def unlisten() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        self._listeners.append(listener)
        return unlisten

    async def until_connected(self) -> None:
        """As `ZooKeeper.until_connected`."""
        while not self.connected:
            if self.closed:
                raise SessionExpiredError("the client is closed")
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            try:
                await future
            finally:
                if future in self._waiting:
                    self._waiting.remove(future)

    def request(self) -> asyncio.Future[Any]:
        """Return the future response of a new request; it fails when the connection is lost.

        Raises ConnectionLossError, or SessionExpiredError when the client is closed.
        """
        if self.closed:
            raise SessionExpiredError("the client is closed")
        if not self.connected:
            raise ConnectionLossError("not connected")
        future = asyncio.get_running_loop().create_future()
        self._requests[future] = None
        future.add_done_callback(lambda done: self._requests.pop(done, None))
        return future

    @property
    def pending(self) -> list[asyncio.Future[Any]]:
        """The futures of requests without a response, and of callers that wait for a connection."""
        return [*self._requests, *self._waiting]

    def became_connected(self, session_id: int) -> None:
        self.id = session_id
        self.connected = True
        self._notify(SessionEvent.CONNECTED)
        self._wake()

    def became_disconnected(self) -> None:
        """Notify the listeners of a lost connection, and fail its requests."""
        if not self.connected:
            return
        self.connected = False
        self._notify(SessionEvent.DISCONNECTED)
        self._fail(lambda: ConnectionLossError("the connection is lost"))

    def became_expired(self) -> None:
        self.became_disconnected()
        self._notify(SessionEvent.EXPIRED)

    def close(self) -> None:
        """Fail all requests, and remove all listeners."""
        self.closed = True
        self.connected = False
        self._listeners.clear()
        self._fail(lambda: SessionExpiredError("the client was closed"))
        self._wake()

    def crash(self) -> None:
        """Abandon all requests, as at the end of the process: they never complete, and no listener gets an event."""
        self._requests.clear()
        self._waiting.clear()
        self.close()

    def _notify(self, event: SessionEvent) -> None:
        for listener in tuple(self._listeners):
            call(listener, event)

    def _fail(self, error: Callable[[], Exception]) -> None:
        for future in tuple(self._requests):
            if not future.done():
                future.set_exception(error())

    def _wake(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
