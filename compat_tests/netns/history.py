"""The requests and responses of clients: operations, one line of JSON each, in a file per process.

The times are of the machine's monotonic clock, in seconds, so that operations of different processes can be compared:
what ended before another began happened before it.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path

Place = tuple[str, int]
OFFSETS = "__consumer_offsets"


def target_of(source: str) -> str:
    """The topic that records of this one are passed on to, in transactions."""
    return f"{source}-passed-on"


def passed_on(value: str, attempt: str) -> str:
    """What stands there for a value, as one attempt at it says."""
    return f"{value} {attempt}"


def source_of(value: str) -> str:
    return value.partition(" ")[0]


class What(StrEnum):
    PRODUCE = "produce"
    """`values`, the first of which got `offset`, if that is known; acks=all."""
    BEGIN = "begin"
    """A consumer by assignment is to read from `offset` on, and on."""
    READ = "read"
    """A consumer got `values`, the first of them from `offset`."""
    LATEST = "latest"
    """ListOffsets answered that the next record will be at `offset`."""
    END = "end"
    """A consumer that began when this operation did read until there was no more: `offset` would be the next."""
    OWNS = "owns"
    """A member of a group was told its `partitions`."""
    COMMIT = "commit"
    COMMITTED = "committed"
    """OffsetFetch answered `offset`; -1 for none."""
    FINAL = "final"
    """The log when everything had come to rest: `values` from `offset` on."""
    TRANSACTION = "transaction"
    """`values` were written in one transaction, into any partitions of `topic`; one that passed on what `group` read
    from another topic has a group."""
    READ_COMMITTED = "read-committed"
    """A consumer of committed records, who began at the beginning, got `values`; there may be others between them."""
    COMMITTED_LOG = "committed-log"
    """The committed `values` of a partition when everything had come to rest."""
    FAULT = "fault"
    """What `note` says was so, with broker `leader` or everywhere, from `begin` to `end`; for whoever reads this."""
    DEPOSED = "deposed"
    """Another was made the leader of `partitions` at `begin`; broker `leader`, who had led them, may not have known
    until `end`."""


class Outcome(StrEnum):
    OK = "ok"
    FAIL = "fail"
    """It has had no effect, and never will."""
    INFO = "info"
    """Nobody knows."""


@dataclass(frozen=True, slots=True)
class Operation:
    process: str
    what: What
    begin: float
    end: float
    outcome: Outcome = Outcome.OK
    topic: str = ""
    partition: int = -1
    offset: int = -1
    values: tuple[str, ...] = ()
    leader: int = -1
    """The broker that a record was sent to, where the client says so."""
    idempotent: bool = False
    group: str = ""
    generation: int = -1
    partitions: tuple[int, ...] = ()
    note: str = ""

    @property
    def place(self) -> Place:
        return self.topic, self.partition


_DEFAULTS = {field.name: field.default for field in fields(Operation)}


class Recorder:
    """Appends to a file, a line at a time, so that a process may be killed; any thread may write."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)
        self._lock = threading.Lock()

    def write(self, operation: Operation) -> None:
        told = {name: value for name, value in asdict(operation).items() if value != _DEFAULTS[name]}
        line = json.dumps(told) + "\n"
        with self._lock:
            self._file.write(line)


class Histories:
    """Reads the files of a folder, and on as they grow. A line that a killed process has not finished is left out."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._positions: dict[Path, int] = {}
        self._found: list[Operation] = []

    def read(self) -> list[Operation]:
        """All operations, by their ends."""
        for file in self._directory.glob("*.jsonl"):
            with file.open("rb") as data:
                data.seek(self._positions.get(file, 0))
                lines, newline, _ = data.read().rpartition(b"\n")
            self._positions[file] = self._positions.get(file, 0) + len(lines) + len(newline)
            self._found += map(_operation, lines.splitlines())
        self._found.sort(key=lambda operation: operation.end)
        return list(self._found)


def _operation(line: bytes) -> Operation:
    told = json.loads(line)
    told |= {"what": What(told["what"]), "outcome": Outcome(told.get("outcome", Outcome.OK))}
    told |= {name: tuple(told[name]) for name in ("values", "partitions") if name in told}
    return Operation(**told)
