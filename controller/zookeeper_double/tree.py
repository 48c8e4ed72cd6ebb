"""The double's tree of znodes, and the effect of transactions on it.

Owns versions, transaction ids, sequence numbers and the events of a change. Leaves sessions, connections and watches to
`server`. The rules are those of ZooKeeper 3.8; the contract tests compare them with a real server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from odradek_controller.zookeeper.client import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    EventType,
    MultiError,
    NoChildrenForEphemeralsError,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    OpResult,
    Set,
    Stat,
    WatchedEvent,
)


@dataclass(slots=True)
class _Node:
    data: bytes
    czxid: int
    mzxid: int
    ephemeral_owner: int = 0
    version: int = 0
    created: int = 0
    """The number of children that were ever created, which is the next sequence number."""
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        # cversion counts creations and deletions, and created - len(children) is the number of deletions.
        cversion = self.created * 2 - len(self.children)
        return Stat(self.czxid, self.mzxid, self.version, cversion, self.ephemeral_owner, len(self.children))


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class Tree:
    """The tree of znodes. A method that raises changes nothing."""

    def __init__(self) -> None:
        self._zxid = 0
        self._nodes: dict[str, _Node] = {"/": _Node(b"", 0, 0)}

    def get(self, path: str) -> tuple[bytes, Stat]:
        """Return the data of a znode. Raises NoNodeError."""
        node = self._node(path)
        return node.data, node.stat()

    def exists(self, path: str) -> Stat | None:
        node = self._nodes.get(path)
        return node.stat() if node else None

    def children(self, path: str) -> list[str]:
        """Return the names of the children. Raises NoNodeError."""
        return sorted(self._node(path).children)

    def ephemerals(self, session_id: int) -> list[str]:
        """Return the ephemeral znodes of a session."""
        return sorted(path for path, node in self._nodes.items() if node.ephemeral_owner == session_id)

    def commit(self, ops: Sequence[Op], session_id: int) -> tuple[list[OpResult], list[WatchedEvent]]:
        """Run all operations as one transaction; return their results and the events. Raises MultiError."""
        # As in ZooKeeper, a transaction that fails has an id, too.
        self._zxid += 1
        transaction = _Transaction(self._nodes, self._zxid, session_id)
        results: list[OpResult] = []
        for index, op in enumerate(ops):
            try:
                results.append(transaction.do(op))
            except NodeError as error:
                transaction.undo()
                raise MultiError(index, error) from None
        return results, transaction.events

    def _node(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        return node


class _Transaction:
    """A transaction in progress, with the undo of each operation."""

    def __init__(self, nodes: dict[str, _Node], zxid: int, session_id: int) -> None:
        self._nodes = nodes
        self._zxid = zxid
        self._session_id = session_id
        self._undo: list[Callable[[], None]] = []
        self.events: list[WatchedEvent] = []

    def do(self, op: Op) -> OpResult:
        match op:
            case Create():
                return self._create(op)
            case Set():
                return self._set(op)
            case Delete():
                self._delete(op)
            case Check(path, version):
                self._at_version(path, version)
        return None

    def undo(self) -> None:
        for step in reversed(self._undo):
            step()

    def _create(self, op: Create) -> str:
        parent_path = parent_of(op.path)
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise NoNodeError(op.path)
        path = f"{op.path}{parent.created:010d}" if op.sequential else op.path
        if path in self._nodes:
            raise NodeExistsError(op.path)
        if parent.ephemeral_owner:
            raise NoChildrenForEphemeralsError(op.path)
        owner = self._session_id if op.ephemeral else 0
        name = path.rpartition("/")[2]
        self._nodes[path] = _Node(op.data or b"", self._zxid, self._zxid, owner)
        parent.children.add(name)
        parent.created += 1

        def undo() -> None:
            del self._nodes[path]
            parent.children.remove(name)
            parent.created -= 1

        self._undo.append(undo)
        self.events += WatchedEvent(EventType.CREATED, path), WatchedEvent(EventType.CHILD, parent_path)
        return path

    def _set(self, op: Set) -> Stat:
        node = self._at_version(op.path, op.version)
        before = node.data, node.mzxid, node.version

        def undo() -> None:
            node.data, node.mzxid, node.version = before

        self._undo.append(undo)
        node.data, node.mzxid, node.version = op.data or b"", self._zxid, node.version + 1
        self.events.append(WatchedEvent(EventType.CHANGED, op.path))
        return node.stat()

    def _delete(self, op: Delete) -> None:
        node = self._at_version(op.path, op.version)
        if node.children:
            raise NotEmptyError(op.path)
        parent_path, name = parent_of(op.path), op.path.rpartition("/")[2]
        parent = self._nodes[parent_path]
        del self._nodes[op.path]
        parent.children.remove(name)

        def undo() -> None:
            self._nodes[op.path] = node
            parent.children.add(name)

        self._undo.append(undo)
        self.events += WatchedEvent(EventType.DELETED, op.path), WatchedEvent(EventType.CHILD, parent_path)

    def _at_version(self, path: str, version: int) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(path)
        if version not in (ANY_VERSION, node.version):
            raise BadVersionError(path)
        return node
