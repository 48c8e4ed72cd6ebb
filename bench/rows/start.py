"""From the command line to the first answered Metadata; and from `Cluster()` in a running process."""

from __future__ import annotations

from collections.abc import Iterator

from bench import load
from bench.brokers import Broker
from bench.line import ODRADEK, Line, limit
from bench.session import Session


def lines(session: Session) -> Iterator[Line]:
    def measure(broker: Broker) -> dict[str, float]:
        seconds = broker.start()
        broker.stop()
        return {"seconds": seconds}

    with session.stopped() as brokers:
        medians = session.in_turn(brokers, measure)
    yield Line("command line to first answered Metadata", "s", medians["seconds"], (limit(0.25, "s"),))
    own = load.run("clusters", "--clusters", session.runs(9))
    note = f"the first in a process, with its imports: {own['first_ms']:.0f} ms"
    yield Line("`Cluster()` to the same, in a running process", "ms", {ODRADEK: own["ms"]}, (limit(20, "ms"),), note)
