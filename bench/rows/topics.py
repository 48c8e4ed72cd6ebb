"""1,000 topics of 3 partitions: their creation in one request, and a restart of their broker."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.brokers import Broker
from bench.measurement import Measurement, at_most
from bench.ready import wait_for_metadata
from bench.session import Session
from bench.topics import create
from odradek.client.client import parse_address

_TOPICS = 1000
_RUNS = 3


def measurements(session: Session) -> Iterator[Measurement]:
    count = session.sized(_TOPICS)

    def measure(broker: Broker) -> dict[str, float]:
        broker.start()
        address = parse_address(broker.address)
        begun = time.perf_counter()
        create(broker.address, [f"many-{number}" for number in range(count)])
        wait_for_metadata(address, topics=count)
        created = time.perf_counter() - begun
        broker.stop()
        begun = time.perf_counter()
        broker.start()
        wait_for_metadata(address, topics=count)
        restarted = time.perf_counter() - begun
        broker.close()
        return {"create": created, "restart": restarted}

    with session.stopped() as brokers:
        medians = session.in_turn(brokers, measure, session.runs(_RUNS))
    yield Measurement(
        "create 1,000 topics of 3 partitions",
        "s",
        medians["create"],
        (at_most(1.0),),
        "one request to a broker that has just started",
    )
    yield Measurement(
        "restart with these topics", "s", medians["restart"], (at_most(1.0),), "until every partition has a leader"
    )
