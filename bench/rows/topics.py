"""1,000 topics of 3 partitions: created in one request, and found again by a broker that starts on them."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.brokers import Broker
from bench.line import Line, at_most
from bench.ready import wait_for_metadata
from bench.session import Session
from bench.topics import create
from odradek.client.client import parse_address

_TOPICS = 1000
_RUNS = 3


def lines(session: Session) -> Iterator[Line]:
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
    yield Line(
        "create 1,000 topics of 3 partitions",
        "s",
        medians["create"],
        (at_most(1.0),),
        "in one request, to a broker that has just started",
    )
    yield Line("restart on them", "s", medians["restart"], (at_most(1.0),), "until every partition has its leader")
