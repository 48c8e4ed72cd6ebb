"""Transactions of 100 records by one librdkafka producer, without and with the offsets of a consumer."""

from __future__ import annotations

from collections.abc import Iterator

from bench import load
from bench.brokers import Broker
from bench.load.transactions import RECORDS
from bench.measurement import ODRADEK, Measurement, at_least
from bench.process import cpu_seconds
from bench.session import Session
from bench.topics import topic

_TRANSACTIONS = 300
_WARM_UP = 200
_WORK = {
    "produce": f"transactional produce, {RECORDS} × 1 KiB per transaction",
    "transform": f"consume, transform, produce {RECORDS} × 1 KiB, with offsets",
}


def measurements(session: Session) -> Iterator[Measurement]:
    brokers = session.warm()
    for broker in brokers:
        # No earlier row was transactional: Kafka's JVM has not compiled this code yet.
        for work in _WORK:
            _run(broker, work, session.sized(_WARM_UP))
    for work, title in _WORK.items():

        def measure(broker: Broker, work: str = work) -> dict[str, float]:
            return _run(broker, work, session.sized(_TRANSACTIONS))

        medians = session.in_turn(brokers, measure)
        note = f"the client used {medians['busy'][ODRADEK]:.2f} of a processor"
        yield Measurement(title, "transactions/s", medians["rate"], (at_least(1.0),), note)
        yield Measurement("… server CPU per transaction", "ms", medians["server"])


def _run(broker: Broker, work: str, count: int) -> dict[str, float]:
    with topic(broker.address) as target, topic(broker.address) as source:
        used = cpu_seconds(broker.pid) if broker.pid else 0.0
        done = load.run("transactions", work, broker.address, target, "--source", source, "--transactions", count)
        figures = {"rate": done["transactions"] / done["seconds"], "busy": done["client_busy"]}
        if broker.pid:
            figures["server"] = (cpu_seconds(broker.pid) - used) / done["transactions"] * 1e3
    return figures
