"""The work before the first measurement: a JVM compiles only code that it has run often."""

from __future__ import annotations

from bench import load
from bench.topics import topic

_ROUNDS = 2


def warm_up(address: str, size: int, seconds: float) -> None:
    """Produce and consume bulk data, then send single requests."""
    for _ in range(_ROUNDS):
        with topic(address) as name:
            load.run("bulk", "produce", address, name, "--bytes", size)
            load.run("bulk", "consume", address, name, "--bytes", size)
    with topic(address) as name:
        load.run("calls", address, name, "--connections", 64, "--seconds", seconds, "--fetch")
        load.run("calls", address, name, "--connections", 16, "--seconds", seconds)
