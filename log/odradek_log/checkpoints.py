"""Checkpoint files: a line with the version, a line with the count, a line for each entry (Kafka's CheckpointFile).

Owns the text of `recovery-point-offset-checkpoint`, `replication-offset-checkpoint`, `log-start-offset-checkpoint` and
`cleaner-offset-checkpoint`, and the first two lines of `leader-epoch-checkpoint`. Leaves to the directory when they are
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek_log.disk import Disk
from odradek_log.log_errors import CorruptLogError

_VERSION = "0"
TopicPartition = tuple[str, int]


def encode_lines(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def decode_lines(data: bytes, path: str) -> list[str]:
    """Return the lines of the entries; none for an empty file, which Kafka creates. Raises CorruptLogError."""
    if not data:
        return []
    lines = data.decode(errors="replace").split("\n")
    if lines[-1]:
        raise CorruptLogError(f"{path}: the last line {lines[-1]!r} is cut off")
    if lines[0] != _VERSION:
        raise CorruptLogError(f"{path}: checkpoint version {lines[0]!r}, expected {_VERSION!r}")
    try:
        count = int(lines[1])
    except (IndexError, ValueError):
        raise CorruptLogError(f"{path}: the second line must be the number of entries") from None
    entries = [line for line in lines[2:] if line]
    if len(entries) != count:
        raise CorruptLogError(f"{path}: {len(entries)} entries, expected {count}")
    return entries


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """Read an offset checkpoint; a missing file is an empty one. Raises CorruptLogError."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return {}
    offsets = {}
    for line in decode_lines(data, path):
        try:
            topic, partition, offset = line.split(" ")
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise CorruptLogError(f"{path}: expected topic, partition and offset, got {line!r}") from None
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint atomically."""
    disk.replace_file(path, encode_lines(f"{topic} {index} {offset}" for (topic, index), offset in offsets.items()))
