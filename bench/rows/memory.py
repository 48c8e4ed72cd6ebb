"""Resident memory of a broker after its start, and after 1 GB was produced and consumed."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench import load
from bench.brokers import Broker
from bench.measurement import Measurement, limit
from bench.process import resident_mb
from bench.session import Session
from bench.topics import topic

_BYTES = 1_000_000_000
_SETTLE_S = 2.0
_RUNS = 3


def measurements(session: Session) -> Iterator[Measurement]:
    size = session.sized(_BYTES)

    def measure(broker: Broker) -> dict[str, float]:
        broker.start()
        time.sleep(session.seconds(_SETTLE_S))
        assert broker.pid is not None
        idle = resident_mb(broker.pid)
        with topic(broker.address) as name:
            load.run("bulk", "produce", broker.address, name, "--bytes", size)
            load.run("bulk", "consume", broker.address, name, "--bytes", size)
            after = resident_mb(broker.pid)
        broker.stop()
        return {"idle": idle, "after": after}

    with session.stopped() as brokers:
        medians = session.in_turn(brokers, measure, session.runs(_RUNS))
    yield Measurement("memory, idle", "MB", medians["idle"], (limit(45, "MB"),))
    yield Measurement("memory after 1 GB produced and consumed", "MB", medians["after"], (limit(100, "MB"),))
