"""A JVM compiles what it runs often: nobody is measured before it has done the work of the rows for a while."""

from __future__ import annotations

from bench import load
from bench.topics import topic

_ROUNDS = 2


def warm_up(address: str, size: int, seconds: float) -> None:
    """Bulk data in and out, then single requests."""
    for _ in range(_ROUNDS):
        with topic(address) as name:
            load.run("bulk", "produce", address, name, "--bytes", size)
            load.run("bulk", "consume", address, name, "--bytes", size)
    with topic(address) as name:
        load.run("calls", address, name, "--connections", 64, "--seconds", seconds, "--fetch")
        load.run("calls", address, name, "--connections", 16, "--seconds", seconds)
