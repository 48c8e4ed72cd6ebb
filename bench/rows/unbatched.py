"""One record of 100 bytes per Produce request, acks=all, one request in flight per connection."""

from __future__ import annotations

from collections.abc import Iterator

from bench import load
from bench.brokers import Broker
from bench.measurement import ODRADEK, Measurement, at_least, at_most
from bench.session import Session
from bench.topics import topic

_CONNECTIONS = (1, 16, 64)
_CLIENT_IS_THE_LIMIT = 0.95


def measurements(session: Session) -> Iterator[Measurement]:
    for connections in _CONNECTIONS:

        def measure(broker: Broker, connections: int = connections) -> dict[str, float]:
            with topic(broker.address) as name:
                options = ("--connections", connections, "--seconds", session.seconds(2), "--pid", broker.pid or 0)
                done = load.run("calls", broker.address, name, *options)
            assert not done["errors"], done
            figures = {"rate": done["requests"] / done["seconds"], "p99": done["p99_ms"], "busy": done["client_busy"]}
            return figures | ({"server": done["server_us"]} if broker.pid else {})

        medians = session.in_turn(session.warm(), measure)
        plural = "connection" if connections == 1 else "connections"
        work = f"unbatched produce, {connections} {plural}"
        busy = medians["busy"][ODRADEK]
        limit = ", which limits the rate" if busy > _CLIENT_IS_THE_LIMIT else ""
        note = f"the client used {busy:.2f} of a processor{limit}"
        yield Measurement(work, "requests/s", medians["rate"], (at_least(1.0),), note)
        yield Measurement("… p99", "ms", medians["p99"], (at_most(1.0),))
        yield Measurement("… server CPU per request", "µs", medians["server"])
