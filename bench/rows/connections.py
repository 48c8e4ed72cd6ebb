"""Many connections: 200 busy ones among 1,000 idle ones; then 3,000 that produce and fetch."""

from __future__ import annotations

import resource
from collections.abc import Iterator

from bench import load
from bench.brokers import Broker
from bench.measurement import ODRADEK, Figures, Measurement, Target
from bench.session import Session
from bench.topics import topic

_RATE = 8_000
_RUNS = 3
_WITHIN = 5.0
_SPARE_FILES = 500


def measurements(session: Session) -> Iterator[Measurement]:
    yield from _busy_among_idle(session)
    yield from _thousands(session)


def _busy_among_idle(session: Session) -> Iterator[Measurement]:
    """Measure latency at a fixed rate: without it, latency only grows with the number of connections."""

    def measure(broker: Broker) -> dict[str, float]:
        with topic(broker.address) as name:
            common = ("calls", broker.address, name, "--fetch", "--seconds", session.seconds(2))
            few = load.run(*common, "--connections", 16, "--rate", _RATE)
            many = load.run(*common, "--connections", 200, "--idle", 1000, "--rate", _RATE)
            flat_out = load.run(*common, "--connections", 200, "--idle", 1000)
            few_flat_out = load.run(*common, "--connections", 16)
        return {
            "few": few["p99_ms"],
            "many": many["p99_ms"],
            "times": many["p99_ms"] / few["p99_ms"],
            "flat out": flat_out["p99_ms"],
            "times flat out": flat_out["p99_ms"] / few_flat_out["p99_ms"],
            "errors": few["errors"] + many["errors"] + flat_out["errors"],
        }

    medians = session.in_turn(session.warm(), measure, session.runs(_RUNS))
    work = "200 busy connections among 1,000 idle, produce and fetch"
    note = f"{_RATE:,} requests/s in total; 16 connections at that rate: {medians['few'][ODRADEK]:.2f} ms"
    yield Measurement(f"{work}, p99", "ms", medians["many"], (), note)
    yield Measurement("… as a multiple of 16 connections", "×", medians["times"], (_within,))
    note = f"without a rate limit; {medians['times flat out'][ODRADEK]:.1f} × the p99 of 16 connections"
    yield Measurement(f"{work}, p99 at full speed", "ms", medians["flat out"], (), note)
    yield Measurement("… errors", "", medians["errors"], (_none,))


def _thousands(session: Session) -> Iterator[Measurement]:
    connections = min(session.sized(3000), resource.getrlimit(resource.RLIMIT_NOFILE)[0] - _SPARE_FILES)

    def measure(broker: Broker) -> dict[str, float]:
        with topic(broker.address) as name:
            done = load.run(
                "calls", broker.address, name, "--connections", connections, "--seconds", session.seconds(3), "--fetch"
            )
        return {
            "rate": done["requests"] / done["seconds"],
            "p99": done["p99_ms"],
            "errors": done["errors"],
            "least": done["least_served"],
        }

    medians = session.in_turn(session.warm(), measure, session.runs(_RUNS))
    work = f"{connections:,} connections, each producing and fetching"
    least = f"the slowest connection had {medians['least'][ODRADEK]:.0f} responses in 3 s"
    served = Target("all served", lambda _: medians["least"][ODRADEK] > 0)
    yield Measurement(work, "requests/s", medians["rate"], (served,), least)
    yield Measurement("… p99", "ms", medians["p99"])
    yield Measurement("… errors", "", medians["errors"], (_none,))


def _is_none(figures: Figures) -> bool:
    return figures[ODRADEK] == 0


_none = Target("none", _is_none)
_within = Target(f"≤ {_WITHIN:g}", lambda figures: figures[ODRADEK] <= _WITHIN)
