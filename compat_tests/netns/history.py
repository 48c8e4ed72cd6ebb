"""The requests and responses of clients: operations, one line of JSON each, in a file per process.

The times are of the machine's monotonic clock, in seconds, so that operations of different processes can be compared:
an operation that ended before another began happened before it.
"""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path

TopicPartition = tuple[str, int]
OFFSETS = "__consumer_offsets"


def target_of(source: str) -> str:
    """Return the topic to which clients copy the records of this one, in transactions."""
    return f"{source}-copies"


def copy_of(value: str, attempt: str) -> str:
    """Return the copy of a value, which names the attempt that wrote it."""
    return f"{value} {attempt}"


def source_of(value: str) -> str:
    return value.partition(" ")[0]


class Kind(StrEnum):
    """The kind of an operation, which gives its fields their meaning."""

    PRODUCE = "produce"
    """A producer sent `values` with acks=all; the first got `offset`, if that is known."""
    BEGIN = "begin"
    """A consumer with assigned partitions starts to read at `offset`."""
    READ = "read"
    """A consumer received `values`, the first of them from `offset`."""
    LATEST = "latest"
    """ListOffsets returned `offset` as the latest offset."""
    END = "end"
    """A consumer that started with this operation read to the end of the partition; `offset` is the end offset."""
    OWNS = "owns"
    """A member of a group received its assignment, `partitions`."""
    COMMIT = "commit"
    """A member of a group committed `offset`."""
    COMMITTED = "committed"
    """OffsetFetch returned `offset`; -1 for none."""
    FINAL = "final"
    """The log after all clients have ended has `values` from `offset` on."""
    TRANSACTION = "transaction"
    """A producer wrote `values` in one transaction, into any partitions of `topic`. `group` is set if the transaction
    copied records that the group read from another topic."""
    READ_COMMITTED = "read-committed"
    """A read_committed consumer that started at offset 0 received `values`; their offsets may have gaps."""
    COMMITTED_LOG = "committed-log"
    """After all clients have ended, `values` are the committed records of the partition."""
    FAULT = "fault"
    """The fault `note` affected broker `leader` from `begin` to `end`. The checks use only the times of kills, to
    find deposed leaders."""
    DEPOSED = "deposed"
    """The controller elected another leader of `partitions` at `begin`; their former leader, broker `leader`, may not
    have known it until `end`."""


class Outcome(StrEnum):
    """The outcome of an operation, as its client knows it."""

    OK = "ok"
    FAIL = "fail"
    """The operation has no effect, now or later."""
    INFO = "info"
    """The operation may have taken effect."""


@dataclass(frozen=True, slots=True)
class Operation:
    process: str
    kind: Kind
    begin: float
    end: float
    outcome: Outcome = Outcome.OK
    topic: str = ""
    partition: int = -1
    offset: int = -1
    values: tuple[str, ...] = ()
    leader: int = -1
    """The broker that a record was sent to, if the client reports it."""
    idempotent: bool = False
    group: str = ""
    generation: int = -1
    partitions: tuple[int, ...] = ()
    note: str = ""

    @property
    def topic_partition(self) -> TopicPartition:
        return self.topic, self.partition


_DEFAULTS = {field.name: field.default for field in fields(Operation)}


class Recorder:
    """Appends operations to a file, a line each, so that the history survives kill -9. Any thread may write."""

    def __init__(self, file: Path) -> None:
        self._file = file.open("a", buffering=1)
        self._lock = threading.Lock()

    def write(self, operation: Operation) -> None:
        fields = {name: value for name, value in asdict(operation).items() if value != _DEFAULTS[name]}
        line = json.dumps(fields) + "\n"
        with self._lock:
            self._file.write(line)


class Histories:
    """Reads the files of a folder as they grow, without the unfinished last line of a killed process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._positions: dict[Path, int] = {}
        self._found: list[Operation] = []

    def read(self) -> list[Operation]:
        """Return all operations, ordered by their ends."""
        for file in self._directory.glob("*.jsonl"):
            with file.open("rb") as data:
                data.seek(self._positions.get(file, 0))
                lines, newline, _ = data.read().rpartition(b"\n")
            self._positions[file] = self._positions.get(file, 0) + len(lines) + len(newline)
            self._found += map(_operation, lines.splitlines())
        self._found.sort(key=lambda operation: operation.end)
        return list(self._found)


def _operation(line: bytes) -> Operation:
    fields = json.loads(line)
    fields |= {"kind": Kind(fields["kind"]), "outcome": Outcome(fields.get("outcome", Outcome.OK))}
    fields |= {name: tuple(fields[name]) for name in ("values", "partitions") if name in fields}
    return Operation(**fields)
