"""What we need of ZooKeeper: the port that the store, the election and the watches are written against.

Owns the vocabulary (operations, `Stat`, events, errors) and the promises that every implementation keeps.
`kazoo_client` connects to real servers, the tests have one in memory. The same contract tests run against both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

ANY_VERSION = -1
"""As the version of `set` and `delete`: whatever it is."""

MAX_REQUEST_BYTES = 0xFFFFF
"""A server's `jute.maxbuffer`, as it comes: it closes the connection on a request that is longer."""

_OVERHEAD_BYTES = 64


class ZooKeeperError(Exception):
    """ZooKeeper did not do what it was asked for."""


class NodeError(ZooKeeperError):
    """It answered that this cannot be, given its nodes as they are: nothing was changed. `path` says which."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class NoNodeError(NodeError):
    """No node is there; of `create`, no parent."""


class NodeExistsError(NodeError):
    """There is a node already."""


class BadVersionError(NodeError):
    """The node has another version than the one that was asked for."""


class NotEmptyError(NodeError):
    """The node to delete has children."""


class NoChildrenForEphemeralsError(NodeError):
    """The node's parent would be ephemeral."""


class MultiError(ZooKeeperError):
    """A `multi` was refused and none of it was done: `error` is what its operation number `index` met."""

    def __init__(self, index: int, error: NodeError) -> None:
        super().__init__(f"operation {index}: {type(error).__name__}({error.path})")
        self.index = index
        self.error = error


class ConnectionLossError(ZooKeeperError):
    """There is no connection. A write that was under way when it broke may have been done, or may still be."""


class RequestTooLargeError(ZooKeeperError):
    """The request was not sent, because the server would close the connection on it: see MAX_REQUEST_BYTES."""


class SessionExpiredError(ZooKeeperError):
    """The session that the request belonged to is over, and with it its ephemeral nodes; or the client was closed."""


class Stat(NamedTuple):
    """What ZooKeeper knows of a node beside its data."""

    czxid: int
    """The transaction that created it: grows with every creation and is never used again."""
    mzxid: int
    """The transaction that last set its data."""
    version: int
    """How often its data was set."""
    cversion: int
    """How often a child came or went."""
    ephemeral_owner: int
    """The id of the session that it ends with; 0 of a node that stays."""
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
    """One operation of a `multi`: the node is there and has this version. Its result is None."""

    path: str
    version: int


Op = Create | Set | Delete | Check
OpResult = str | Stat | None


def request_bytes(ops: Sequence[Op]) -> int:
    """At most so long is a `multi` of these (with paths below the chroot as they are) on the wire."""
    return _OVERHEAD_BYTES + sum(_OVERHEAD_BYTES + len(op.path.encode()) + len(_data(op)) for op in ops)


def _data(op: Op) -> bytes:
    return (op.data or b"") if isinstance(op, Create | Set) else b""


class EventType(Enum):
    """What a watch saw."""

    CREATED = "created"
    DELETED = "deleted"
    CHANGED = "changed"
    """The node's data was set."""
    CHILD = "child"
    """A child came or went."""


class WatchedEvent(NamedTuple):
    """That something changed, never what it is now."""

    type: EventType
    path: str


Watch = Callable[[WatchedEvent], None]


class SessionEvent(Enum):
    """What became of the session or its connection."""

    CONNECTED = "connected"
    """Requests are possible (again). After DISCONNECTED it is the same session, after EXPIRED a new one."""
    DISCONNECTED = "disconnected"
    """Nobody knows whether the session lives: the server ends it when its timeout passes without us."""
    EXPIRED = "expired"
    """The server ended the session. A new one begins by itself, and CONNECTED follows."""


SessionListener = Callable[[SessionEvent], None]


class ZooKeeper(Protocol):
    """One client with one session at a time, used from one event loop.

    Paths are absolute, below the chroot. Every request may raise ConnectionLossError (at once, while there is no
    connection), SessionExpiredError and RequestTooLargeError; none is tried again by the client. Requests are done in
    the order in which they were made.

    **Watches** are called on the loop, once for each read that left one, with the node's first change after that read:
    `get` and `exists` see CREATED, CHANGED and DELETED, `children` sees CHILD and DELETED. `get` and `children` leave
    none where there is no node; `exists` leaves one either way. A watch is called before any answer that was made after
    the change: who reads the new data has seen the event. Watches do not outlive the connection: they are dropped
    without a call before DISCONNECTED, and whoever left them reads again, with a new watch, at CONNECTED.

    **Session.** DISCONNECTED is heard before the requests raise that it took down. A client that is cut off learns only
    when it reaches a server again that its session has expired. The listeners hear of it before anything can be done in
    the next session, and a request that was begun in one session is never done in another.
    """

    @property
    def session_id(self) -> int:
        """The session's id, as `Stat.ephemeral_owner` has it. Another one after EXPIRED and CONNECTED."""
        ...

    @property
    def connected(self) -> bool:
        """Whether the last event was CONNECTED."""
        ...

    def listen(self, listener: SessionListener) -> Callable[[], None]:
        """Call `listener` on the loop with each later event, in the order of registration; returns what ends that."""
        ...

    async def until_connected(self) -> None:
        """Return when there is a connection, in whatever session; SessionExpiredError when the client is closed."""
        ...

    async def create(
        self, path: str, data: bytes | None = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> str:
        """Create one node; its path, which of a `sequential` one is `path` and ten digits that only grow.

        Kafka's containers of other nodes have no data at all (None), which reads as empty.
        Raises NodeExistsError, NoNodeError (of the parent), NoChildrenForEphemeralsError.
        """
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """A node's data. Raises NoNodeError."""
        ...

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        """Replace a node's data if it has this version; what it is then. Raises NoNodeError, BadVersionError."""
        ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node if it has this version. Raises NoNodeError, BadVersionError, NotEmptyError."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """A node's `Stat`, or None when there is no node."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names (not the paths) of a node's children, sorted. Raises NoNodeError."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """Do all of it or nothing, in order, as one transaction; a result for each. Raises MultiError."""
        ...

    async def close(self) -> None:
        """End the session, and with it its ephemeral nodes; no event follows. Idempotent."""
        ...
