"""The znodes of a running Apache Kafka 3.9.1, as they were dumped: path to data, one tree after each step."""

from __future__ import annotations

from pathlib import Path

_FILE = Path(__file__).parents[1] / "facts" / "znodes-3.9.1.txt"
_SOME_MS = "1700000000000"


def dumped() -> list[dict[str, bytes]]:
    """Fresh broker; a topic t3; configurations and ACLs; a group, four partitions, a topic gone. None is empty."""
    trees: list[dict[str, bytes]] = []
    for line in _FILE.read_text().splitlines():
        if line.startswith("====="):
            trees.append({})
        elif line.startswith("/"):
            path, _stat, data = line.split("\t")
            empty = data in ("<null>", "<empty>")
            trees[-1][path] = b"" if empty else data.replace("<ms>", _SOME_MS).encode()
    return trees
