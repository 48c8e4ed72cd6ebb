"""Writing as the controller: every transaction holds only while the controller's epoch is the one it was elected with.

Owns the fence, what becomes of a transaction whose connection broke, and how a change that is too large for one request
is cut. Who is fenced off is told once, by `lost`, and by NotControllerError each time.
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
"""A transaction's size, if it is of many operations."""
_LARGEST = MAX_REQUEST_BYTES - 4096
"""Room is left for the fence and a chroot."""


class ControllerTerm(NamedTuple):
    """A term as the controller: its epoch, the version of `/controller_epoch`, and the session that it ends with."""

    epoch: int
    epoch_version: int
    session_id: int


class FencedWriter:
    """`lost` is called once, when nothing more can be written; with the reason."""

    def __init__(self, zk: ZooKeeper, term: ControllerTerm, lost: Callable[[str], None]) -> None:
        self._zk = zk
        self._term = term
        self._lost = lost
        self._why_lost = ""

    async def write(self, ops: Sequence[Op], max_bytes: int = MAX_BYTES) -> None:
        """Do all of it, in order; what fits into one request as one transaction.

        Raises NotControllerError: another controller was elected, or the session is over, or what is there is not what
        the operations were made for. Of a change of several transactions the first ones may then have been made, as
        Kafka's controller leaves it: whoever is elected next finishes what has begun.
        RequestTooLargeError, with nothing done, if a single node would have too much data.
        """
        parts = list(_cut(ops, max_bytes))
        for part in parts:
            if request_bytes(part) > _LARGEST:
                raise RequestTooLargeError(f"{part[0].path}: about {request_bytes(part)} bytes")
        for part in parts:
            await self._transaction(part)

    async def try_write(self, op: Op) -> bool:
        """Do this one, and say whether it could be done: others write such a node, too. Raises NotControllerError."""
        try:
            await self._transaction([op], may_fail=True)
        except MultiError:
            return False
        return True

    def end(self) -> None:
        """The term was given up: nothing more is written in it."""
        self._why_lost = self._why_lost or "this controller has resigned"

    def lose(self, why: str) -> NotControllerError:
        """This term is over. Returns the error to raise."""
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
                raise self.lose(f"what is stored is not what the image says: {refused}") from refused
            except SessionExpiredError as error:
                raise self.lose("the session is over") from error
            except ConnectionLossError:
                done = await self._done(ops)
                self._check_session()  # what is done in a session that is over counts for whoever is next
                if done:
                    return

    def _check_session(self) -> None:
        if self._why_lost:
            raise NotControllerError(self._why_lost)
        if self._zk.session_id != self._term.session_id:
            raise self.lose("the session is over")

    async def _done(self, ops: Sequence[Op]) -> bool:
        """Whether a transaction has been done after all; one of its operations tells for all of them."""
        while True:
            try:
                await self._zk.until_connected()
                for op in ops:
                    done = await self._one_done(op, ops)
                    if done is not None:
                        return done
                return False  # it can be done twice
            except ConnectionLossError:
                continue
            except SessionExpiredError as error:
                raise self.lose("the session is over") from error

    async def _one_done(self, op: Op, ops: Sequence[Op]) -> bool | None:
        """Nobody but the controller writes these nodes: what is as it would be after it, is what it has made."""
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


def _cut(ops: Sequence[Op], max_bytes: int) -> Iterable[Sequence[Op]]:
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
