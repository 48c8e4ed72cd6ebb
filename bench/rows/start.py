"""The time to the first Metadata response: of the command line, and of `Cluster()` in a running process."""

from __future__ import annotations

from collections.abc import Iterator

from bench import load
from bench.brokers import Broker
from bench.measurement import ODRADEK, Measurement, limit
from bench.session import Session


def measurements(session: Session) -> Iterator[Measurement]:
    def measure(broker: Broker) -> dict[str, float]:
        seconds = broker.start()
        broker.stop()
        return {"seconds": seconds}

    with session.stopped() as brokers:
        medians = session.in_turn(brokers, measure)
    yield Measurement("command line to first Metadata response", "s", medians["seconds"], (limit(0.25, "s"),))
    own = load.run("clusters", "--clusters", session.runs(9))
    note = f"in a running process; the first, with the imports: {own['first_ms']:.0f} ms"
    yield Measurement("`Cluster()` to first Metadata response", "ms", {ODRADEK: own["ms"]}, (limit(20, "ms"),), note)
