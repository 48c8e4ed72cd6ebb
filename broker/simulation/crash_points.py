"""Crash points: a process ends before, within or after an operation of its disk.

`CrashingDisk` wraps a disk, in memory or real. It decides when the process ends and which part of the operation
remains; the caller's `die` ends the process.
"""

from __future__ import annotations

import errno
import os
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Literal, cast

from odradek_log.disk import Disk, write_all

OperationKind = tuple[str, str]
"""The operation and the kind of file."""

READING = ("pread", "size", "names", "exists", "is_directory", "modified_ms", "read_file")
WRITING = (
    "open",
    "write",
    "truncate",
    "sync",
    "sync_file",
    "make_directory",
    "rename",
    "remove",
    "remove_tree",
    "write_file",
    "replace_file",
    "sync_directory",
)
HOW: Final[tuple[Literal["before", "within", "after"], ...]] = ("before", "within", "after")
_OWNERS = (("__cluster_metadata", "metadata "), ("__consumer_offsets", "offsets "), ("__transaction_state", "states "))
_SEGMENT_FILE = re.compile(r"\d{20}(?:-\d{10})?\.(.+)")


def file_kind(path: str) -> str:
    """Return `log`, `snapshot`, `recovery-point-offset-checkpoint` …, with a prefix for internal topics."""
    owner = next((word for name, word in _OWNERS if name in path), "")
    name = os.path.basename(path)
    found = _SEGMENT_FILE.fullmatch(name)
    if found is not None:
        return owner + found[1]
    return owner + (name if "." in name or "checkpoint" in name or name == "quorum-state" else "directory")


class CrashingDisk:
    """Implements `odradek_log.disk.Disk` on `disk`. Calls `die` at the crash point; if it returns, all operations fail
    until `revive`."""

    def __init__(self, disk: Disk, chance: random.Random, die: Callable[[], None]) -> None:
        self._disk = disk
        self._chance = chance
        self._die = die
        self._paths: dict[int, str] = {}
        self._point: tuple[OperationKind | None, int] | None = None
        self.dead = False
        self.done: Counter[OperationKind] = Counter()
        """The number of operations of each kind."""
        self.reached: list[tuple[str, OperationKind]] = []
        """The crash points that were reached."""
        for name in READING:
            setattr(self, name, self._reading(getattr(disk, name)))
        for name in WRITING:
            setattr(self, name, self._writing(name, getattr(disk, name)))
        for name in ("make_directories", "lock", "close", "reserve"):
            setattr(self, name, getattr(disk, name))

    def as_disk(self) -> Disk:
        return cast("Disk", self)

    def crash_at(self, kind: OperationKind | None, number: int) -> None:
        """Crash at the operation with this number from now, 1 is the next; only `kind` counts unless it is None."""
        self._point = (kind, number)

    def disarm(self) -> None:
        self._point = None

    def revive(self) -> None:
        """Let a new process use the disk."""
        self.dead = False
        self.disarm()

    def end(self) -> None:
        """End the process now."""
        self.dead = True
        self.disarm()

    def _reading(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def read(*args: Any) -> Any:
            if self.dead:
                raise _gone()
            return call(*args)

        return read

    def _writing(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def write(*args: Any, **options: Any) -> Any:
            if self.dead:
                raise _gone()
            path: str = self._paths.get(args[0], "") if isinstance(args[0], int) else args[0]
            does_nothing = name == "open" and self._disk.exists(path)
            kind = (name, file_kind(path))
            if not does_nothing:
                self.done[kind] += 1
                if self._is_reached(kind):
                    self._crash(kind, call, args, options)
            result = call(*args, **options)
            if name == "open":
                self._paths[result] = path
            return result

        return write

    def _is_reached(self, kind: OperationKind) -> bool:
        if self._point is None or self._point[0] not in (None, kind):
            return False
        wanted, number = self._point
        self._point = (wanted, number - 1) if number > 1 else None
        return number <= 1

    def _crash(
        self, kind: OperationKind, call: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        how = self._chance.choice(HOW)
        if how == "after":
            call(*args, **options)
        elif how == "within":
            self._begin(kind[0], args)
        self.dead = True
        self.reached.append((how, kind))
        self._die()
        raise _gone()

    def _begin(self, name: str, args: tuple[Any, ...]) -> None:
        """Do a part of an operation that is not atomic."""
        if name == "write":
            write_all(self._disk, args[0], self._part(args[1]))
        elif name == "write_file":
            self._disk.write_file(args[0], self._part(args[1]))
        elif name == "replace_file":
            self._disk.write_file(args[0] + ".tmp", self._part(args[1]))
        elif name == "remove_tree":
            for file in sorted(self._disk.names(args[0])):
                if self._chance.random() < 0.5:
                    self._disk.remove(f"{args[0]}/{file}")

    def _part(self, data: bytes | bytearray | memoryview) -> bytes:
        return bytes(data[: self._chance.randint(0, len(data))])


def _gone() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))
