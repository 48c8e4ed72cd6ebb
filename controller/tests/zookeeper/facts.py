"""The znodes of Apache Kafka 3.9.1: path to data, a tree after each of four steps."""

from __future__ import annotations

from pathlib import Path

_FILE = Path(__file__).parents[1] / "facts" / "znodes-3.9.1.txt"
_SOME_MS = "1700000000000"


def kafka_trees() -> list[dict[str, bytes]]:
    """Return the trees after: a start; a topic t3; configurations and ACLs; a group, a fourth partition of t3, and a
    deleted topic. The data of a znode without data is b"" here."""
    trees: list[dict[str, bytes]] = []
    for line in _FILE.read_text().splitlines():
        if line.startswith("====="):
            trees.append({})
        elif line.startswith("/"):
            path, _stat, data = line.split("\t")
            empty = data in ("<null>", "<empty>")
            trees[-1][path] = b"" if empty else data.replace("<ms>", _SOME_MS).encode()
    return trees
