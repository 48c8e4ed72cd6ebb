"""The interface to ZooKeeper: the operations that the store, the election and the watches use.

Owns the vocabulary (operations, `Stat`, events, errors) and the promises that every implementation keeps. The same
contract tests run against both implementations: `kazoo_client`, which connects to real servers, and `zookeeper_double`,
in memory, for tests and the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1
"""With this version `set` and `delete` do not check the version of the znode."""

MAX_REQUEST_BYTES = 0xFFFFF
"""The default of a server's `jute.maxbuffer`: it closes the connection of a client that sends a longer request."""

_OVERHEAD_BYTES = 64
"""More than the bytes of a request, or of one operation, without its path and data."""


class ZooKeeperError(Exception):
    """A request to ZooKeeper failed."""


class NodeError(ZooKeeperError):
    """ZooKeeper refused an operation on the znode at `path`, and changed nothing."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NoNodeError(NodeError):
    """The znode, or for `create` its parent, does not exist."""


class NodeExistsError(NodeError):
    """The znode exists already."""


class BadVersionError(NodeError):
    """The znode does not have the expected version."""


class NotEmptyError(NodeError):
    """The znode to delete has children."""


class NoChildrenForEphemeralsError(NodeError):
    """The parent of the znode is ephemeral."""


class MultiError(ZooKeeperError):
    """A `multi` failed, and changed nothing: `error` is the error of operation `index`."""

    def __init__(self, index: int, error: NodeError) -> None:
        super().__init__(f"operation {index}: {type(error).__name__}({error.path})")
        self.index = index
        self.error = error


class ConnectionLossError(ZooKeeperError):
    """There is no connection. A write that was sent may have succeeded, or may still succeed."""


class RequestTooLargeError(ZooKeeperError):
    """The request was not sent, because it is longer than MAX_REQUEST_BYTES."""


class SessionExpiredError(ZooKeeperError):
    """The session of the request has expired, with its ephemeral znodes, or the client is closed."""


class Stat(NamedTuple):
    """The metadata of a znode."""

    czxid: int
    """The id of the transaction that created the znode. A later transaction has a higher id."""
    mzxid: int
    """The id of the transaction that created the znode, or last set its data."""
    version: int
    """The number of times that the data was set."""
    cversion: int
    """The number of times that a child was created or deleted."""
    ephemeral_owner: int
    """The id of the session that owns an ephemeral znode; 0 for a persistent znode."""
    num_children: int


class Create(NamedTuple):
    """One operation of a `multi`, as `ZooKeeper.create`. Its result is the path."""

    path: str
    data: bytes | None = None
    ephemeral: bool = False
    sequential: bool = False


class Set(NamedTuple):
    """One operation of a `multi`, as `ZooKeeper.set`. Its result is the `Stat`."""

    path: str
    data: bytes | None
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """One operation of a `multi`, as `ZooKeeper.delete`. Its result is None."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """One operation of a `multi`: fails unless the znode has this version. Its result is None."""

    path: str
    version: int


Op = Create | Set | Delete | Check
OpResult = str | Stat | None


def request_bytes(ops: Sequence[Op]) -> int:
    """Return an upper limit of the bytes of a `multi` with these operations, without the chroot in their paths."""
    return _OVERHEAD_BYTES + sum(_OVERHEAD_BYTES + len(op.path.encode()) + len(_data(op)) for op in ops)


def _data(op: Op) -> bytes:
    return (op.data or b"") if isinstance(op, Create | Set) else b""


class EventType(Enum):
    """The kind of a change that a watch reports."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    """The data of the znode was set."""
    CHILD = "child"
    """A child was created or deleted."""


class WatchedEvent(NamedTuple):
    """A change of a znode, without its new state."""

    type: EventType
    path: str


Watch = Callable[[WatchedEvent], None]


class SessionEvent(Enum):
    """A change of the session or its connection."""

    CONNECTED = "connected"
    """The client can send requests: after DISCONNECTED in the same session, after EXPIRED in a new one."""
    DISCONNECTED = "disconnected"
    """The connection is lost. The session expires if the client does not connect again before the session timeout."""
    EXPIRED = "expired"
    """The session has expired on the server. The client begins a new one, and CONNECTED follows."""


SessionListener = Callable[[SessionEvent], None]


class ZooKeeper(Protocol):
    """A client with one session at a time, used from one event loop.

    Paths start with `/` and are below the chroot. Every request may raise ConnectionLossError (immediately, while there
    is no connection), SessionExpiredError and RequestTooLargeError; the client does not retry. The server handles the
    requests in the order in which the caller made them.

    **Watches.** The client calls a watch on the loop, once, with the first change of the znode after the read that
    registered it: `get` and `exists` watch for CREATED, CHANGED and DELETED, `children` for CHILD and DELETED. `get`
    and `children` register no watch on a missing znode; `exists` does. The client calls a watch before it returns a
    response that the server made after the change. Before DISCONNECTED the client drops all watches without a call; at
    CONNECTED the caller reads again, with new watches.

    **Session.** Listeners get DISCONNECTED before the lost requests raise. A disconnected client learns that its
    session has expired when it connects again. Listeners get EXPIRED before the first request of the next session, and
    a request of one session never runs in another.
    """

    @property
    def session_id(self) -> int:
        """The id of the session, as in `Stat.ephemeral_owner`; a new one after EXPIRED and CONNECTED."""
        ...

    @property
    def connected(self) -> bool:
        """Whether the last event was CONNECTED."""
        ...

    def listen(self, listener: SessionListener) -> Callable[[], None]:
        """Call `listener` on the loop with each later event; listeners are called in the order of registration.

        Return a callable that removes the listener."""
        ...

    async def until_connected(self) -> None:
        """Return when there is a connection, in any session. Raises SessionExpiredError if the client is closed."""
        ...

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create a znode and return its path: `path`, to which `sequential` appends a growing number of ten digits.

        Kafka creates znodes that only have children with None as their data; `get` returns it as b"".
        Raises NodeExistsError, NoNodeError (for the parent), NoChildrenForEphemeralsError.
        """
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Return the data of a znode. Raises NoNodeError."""
        ...

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace the data of a znode that has this version. Raises NoNodeError, BadVersionError."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a znode that has this version. Raises NoNodeError, BadVersionError, NotEmptyError."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Return the `Stat` of a znode, or None if it does not exist."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """Return the names (not the paths) of the children, sorted. Raises NoNodeError."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """Run all operations or none, in order, as one transaction; return their results. Raises MultiError."""
        ...

    async def close(self) -> None:
        """End the session and its ephemeral znodes; no event follows. Idempotent."""
        ...
