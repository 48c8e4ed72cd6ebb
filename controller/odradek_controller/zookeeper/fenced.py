"""Fenced writes of the controller: a transaction succeeds only while `/controller_epoch` has the epoch of the term.

Owns the fence, the outcome of transactions whose connection was lost, and the split of changes that are too large for
one request. Leaves the operations of a change to `znode_operations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from ..store import NotControllerError
from . import paths
from .client import (
    ANY_VERSION,
    MAX_REQUEST_BYTES,
    Check,
    ConnectionLossError,
    Create,
    Delete,
    MultiError,
    NoNodeError,
    Op,
    RequestTooLargeError,
    SessionExpiredError,
    Set,
    ZooKeeper,
    request_bytes,
)

MAX_BYTES = MAX_REQUEST_BYTES // 2
"""The maximum size of a transaction with several operations."""
_MAX_OPERATION_BYTES = MAX_REQUEST_BYTES - 4096
"""The maximum size of a single operation; the rest is for the fence and a chroot."""


class ControllerTerm(NamedTuple):
    """A term as the controller: the controller epoch, the version of `/controller_epoch`, and the session."""

    epoch: int
    epoch_version: int
    session_id: int


class FencedWriter:
    """Writes transactions in one term. Calls `lost` once, with the reason, when a write finds that the term has ended;
    then every write raises NotControllerError."""

    def __init__(self, zk: ZooKeeper, term: ControllerTerm, lost: Callable[[str], None]) -> None:
        self._zk = zk
        self._term = term
        self._lost = lost
        self._why_lost = ""

    async def write(self, ops: Sequence[Op], max_bytes: int = MAX_BYTES) -> None:
        """Write the operations in order, in as few transactions as their size allows.

        Raises NotControllerError if another controller was elected, the session has ended, or the znodes are not in the
        expected state. Some of several transactions may then be written, as in Kafka; the next controller completes the
        change. Raises RequestTooLargeError, before it writes anything, if the data of one znode is too large.
        """
        parts = list(_split(ops, max_bytes))
        for part in parts:
            if request_bytes(part) > _MAX_OPERATION_BYTES:
                raise RequestTooLargeError(
                    f"{part[0].path}: about {request_bytes(part)} bytes, at most {_MAX_OPERATION_BYTES} are allowed"
                )
        for part in parts:
            await self._transaction(part)

    async def try_write(self, op: Op) -> bool:
        """Write one znode that other clients write, too; return whether that succeeded. Raises NotControllerError."""
        try:
            await self._transaction([op], may_fail=True)
        except MultiError:
            return False
        return True

    def end(self) -> None:
        """End the term without calling `lost`; every later write raises NotControllerError."""
        self._why_lost = self._why_lost or "this controller has resigned"

    def lose(self, why: str) -> NotControllerError:
        """End the term with the reason `why`. Return the error to raise."""
        if not self._why_lost:
            self._why_lost = why
            self._lost(why)
        return NotControllerError(self._why_lost)

    async def _transaction(self, ops: Sequence[Op], *, may_fail: bool = False) -> None:
        fence = Check(paths.CONTROLLER_EPOCH, self._term.epoch_version)
        while True:
            self._check_session()
            try:
                await self._zk.multi([fence, *ops])
                return
            except MultiError as refused:
                if refused.index == 0:
                    raise self.lose("another controller was elected") from refused
                if may_fail:
                    raise
                raise self.lose(f"the stored metadata differs from the controller's image: {refused}") from refused
            except SessionExpiredError as error:
                raise self.lose("the session has ended") from error
            except ConnectionLossError:
                written = await self._is_written(ops)
                self._check_session()  # if the session has ended, the next controller reads the result
                if written:
                    return

    def _check_session(self) -> None:
        if self._why_lost:
            raise NotControllerError(self._why_lost)
        if self._zk.session_id != self._term.session_id:
            raise self.lose("the session has ended")

    async def _is_written(self, ops: Sequence[Op]) -> bool:
        """Return whether the transaction was written before the connection was lost; one of its operations shows it."""
        while True:
            try:
                await self._zk.until_connected()
                for op in ops:
                    written = await self._is_operation_written(op, ops)
                    if written is not None:
                        return written
                return False  # no znode shows it: writing these operations twice does no harm
            except ConnectionLossError:
                continue
            except SessionExpiredError as error:
                raise self.lose("the session has ended") from error

    async def _is_operation_written(self, op: Op, ops: Sequence[Op]) -> bool | None:
        """Return whether the operation was written; None if its znode does not show it.

        Except with `try_write`, only the controller writes these znodes.
        """
        match op:
            case Create(path, data, False, False):
                try:
                    return (await self._zk.get(path))[0] == (data or b"")
                except NoNodeError:
                    return False
            case Set(path, _, version) if version != ANY_VERSION:
                last = next(op for op in reversed(ops) if isinstance(op, Set) and op.path == path)
                try:
                    data, stat = await self._zk.get(path)
                except NoNodeError:
                    return False
                return stat.version > version and data == last.data
            case Delete(path):
                return await self._zk.exists(path) is None
        return None


def _split(ops: Sequence[Op], max_bytes: int) -> Iterable[Sequence[Op]]:
    part: list[Op] = []
    size = 0
    for op in ops:
        needed = request_bytes((op,))
        if part and size + needed > max_bytes:
            yield part
            part, size = [], 0
        part.append(op)
        size += needed
    if part:
        yield part
