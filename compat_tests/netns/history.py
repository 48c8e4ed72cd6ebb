"""What clients did and were told: operations, one per line of JSON in a file of each process.

The times are of the machine's monotonic clock, in seconds, so that operations of different processes can be compared:
what ended before another began happened before it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path

Place = tuple[str, int]
OFFSETS = "__consumer_offsets"


class What(StrEnum):
    PRODUCE = "produce"
    """`values`, the first of which got `offset`, if that is known; acks=all."""
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
    FAULT = "fault"
    """What `note` says was so, with broker `leader` or everywhere, from `begin` to `end`; for whoever reads this."""
    DEPOSED = "deposed"
    """Broker `leader` led `partitions` when it was cut off, and may not have known until `end` that another did."""


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


def read_history(files: Iterable[Path]) -> list[Operation]:
    """All operations, by their ends. A line that a killed process has not finished is left out."""
    found = []
    for file in files:
        for line in file.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                told = json.loads(line)
                told |= {"what": What(told["what"]), "outcome": Outcome(told.get("outcome", Outcome.OK))}
                told |= {name: tuple(told[name]) for name in ("values", "partitions") if name in told}
                found.append(Operation(**told))
    return sorted(found, key=lambda operation: operation.end)
