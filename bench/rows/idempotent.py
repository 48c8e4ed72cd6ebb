"""The cost of idempotence: 1 KiB records with and without it, with the same number of requests in flight.

Much of the cost is librdkafka's; the processor time of the server shows the broker's share.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench import load
from bench.brokers import Broker
from bench.measurement import ODRADEK, Measurement, floor, limit
from bench.process import cpu_seconds
from bench.session import Session
from bench.topics import topic

_BYTES = 300_000_000
_PLAIN, _IDEMPOTENT = "produce-in-order", "produce-idempotently"


def measurements(session: Session) -> Iterator[Measurement]:
    size = session.sized(_BYTES)

    def measure(broker: Broker) -> dict[str, float]:
        # In this order, a change in the speed of the machine affects both kinds.
        taken = [_measure(broker, kind, size) for kind in (_PLAIN, _IDEMPOTENT, _IDEMPOTENT, _PLAIN)]
        plain, idempotent = ({figure: a[figure] + b[figure] for figure in a} for a, b in (taken[::3], taken[1:3]))
        times = {figure: idempotent[figure] / plain[figure] for figure in plain if plain[figure]}
        return times | {"rate": plain["seconds"] / idempotent["seconds"]}

    medians = session.in_turn(session.warm(), measure)
    note = f"the client used {medians['client'][ODRADEK]:.2f} × the processor time"
    yield Measurement("produce 1 KiB, idempotent ÷ plain", "×", medians["rate"], (floor(0.95, "×"),), note)
    yield Measurement("… server CPU", "×", medians.get("server", {}), (limit(1.05, "×"),))


def _measure(broker: Broker, kind: str, size: int) -> dict[str, float]:
    pid = broker.pid
    with topic(broker.address) as name:
        before = cpu_seconds(pid) if pid else 0.0
        done = load.run("bulk", kind, broker.address, name, "--bytes", size)
        figures = {"seconds": done["seconds"], "client": done["client_cpu"]}
        return figures | ({"server": cpu_seconds(pid) - before} if pid else {})
