"""Produce with acks=all and consume 1 KiB records through librdkafka, and the server's processor time."""

from __future__ import annotations

import os
from collections.abc import Iterator

from bench import load
from bench.brokers import Broker
from bench.measurement import ODRADEK, Measurement, at_least, at_most
from bench.process import cpu_seconds
from bench.session import Medians, Session
from bench.topics import topic

_BYTES = 500_000_000


def measurements(session: Session) -> Iterator[Measurement]:
    size = session.sized(_BYTES)

    def measure(broker: Broker) -> dict[str, float]:
        with topic(broker.address) as name:
            return _measure(broker, "produce", name, size) | _measure(broker, "consume", name, size)

    medians = session.in_turn(session.warm(), measure)
    yield Measurement(
        "produce 1 KiB, acks=all", "MB/s", medians["produce"], (at_least(2.0),), _shares(medians, "produce")
    )
    yield Measurement("consume 1 KiB", "MB/s", medians["consume"], (at_least(1.1),), _shares(medians, "consume"))
    yield Measurement("server CPU per GB produced", "CPU-s", medians.get("produce cpu", {}), (at_most(0.3),))
    yield Measurement("server CPU per GB consumed", "CPU-s", medians.get("consume cpu", {}), (at_most(0.5),))


def _measure(broker: Broker, work: str, name: str, size: int) -> dict[str, float]:
    pid = broker.pid
    before = cpu_seconds(pid) if pid else 0.0
    done = load.run("bulk", work, broker.address, name, "--bytes", size)
    figures = {work: done["bytes"] / done["seconds"] / 1e6, f"{work} client": done["client_cpu"] / done["seconds"]}
    if pid:
        figures[f"{work} cpu"] = (cpu_seconds(pid) - before) / done["bytes"] * 1e9
    return figures


def _shares(medians: Medians, work: str) -> str:
    """Name the processors that client and server used: if they used all, the machine is the limit."""
    client = medians[f"{work} client"][ODRADEK]
    server = medians[work][ODRADEK] / 1e3 * medians[f"{work} cpu"][ODRADEK]
    return f"of {os.cpu_count()} processors, the client used {client:.1f} and Odradek {server:.1f}"
