"""What idempotence costs: 1 KiB records with and without, in turn, with the same number of requests under way."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from bench import load
from bench.brokers import Broker
from bench.line import ODRADEK, Line, floor
from bench.process import cpu_seconds
from bench.session import Session
from bench.topics import topic

_BYTES = 500_000_000
_RUNS = 5
_KINDS = ("produce-in-order", "produce-idempotently")


def lines(session: Session) -> Iterator[Line]:
    """Odradek beside itself: each ratio is of two runs, one right after the other, and who comes first changes."""
    size = session.sized(_BYTES)
    rates: list[float] = []
    times: list[float] = []
    with session.stopped() as (broker, *_):
        broker.start()
        for run in range(2 * session.runs(_RUNS)):
            taken = {kind: _measure(broker, kind, size) for kind in _KINDS[:: 1 if run % 2 else -1]}
            plain, idempotent = (taken[kind] for kind in _KINDS)
            rates.append(idempotent[0] / plain[0])
            times.append(idempotent[1] / max(plain[1], 1e-2))
    note = f"median of {len(rates)} pairs; server CPU {statistics.median(times):.2f} ×"
    figures = {ODRADEK: statistics.median(rates)}
    yield Line("produce 1 KiB, idempotent ÷ plain", "×", figures, (floor(0.95, "×"),), note)


def _measure(broker: Broker, kind: str, size: int) -> tuple[float, float]:
    """Bytes a second, and seconds of the server's processor."""
    assert broker.pid is not None
    with topic(broker.address) as name:
        before = cpu_seconds(broker.pid)
        done = load.run("bulk", kind, broker.address, name, "--bytes", size)
        return done["bytes"] / done["seconds"], cpu_seconds(broker.pid) - before
