"""Kafka's own ProducerPerformance and ConsumerPerformance, 100-byte records, from its own jars."""

from __future__ import annotations

import csv
import os
import re
import resource
import time
from collections.abc import Callable, Iterator

from odradek_peers import JavaTools

from bench.brokers import Broker
from bench.line import KAFKA, ODRADEK, Line, at_least
from bench.process import cpu_seconds
from bench.session import Medians, Session
from bench.topics import topic

_RECORDS = 3_000_000
_SIZE = 100
# What kafka-run-class.sh gives a tool.
_JVM = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:MaxInlineLevel=15")


def lines(session: Session) -> Iterator[Line]:
    records = session.sized(_RECORDS)
    tools = JavaTools(options=_JVM)

    def measure(broker: Broker) -> dict[str, float]:
        with topic(broker.address) as name:
            produced = _watched(broker, "produce", lambda: _produce(tools, broker.address, name, records))
            consumed = _watched(broker, "consume", lambda: _consume(tools, broker.address, name, records))
            return produced | consumed

    medians = session.in_turn(session.warm(), measure)
    for work, tool, target in (("produce", "producer", 1.5), ("consume", "consumer", 1.0)):
        title = f"{work} 100 B, kafka-{tool}-perf-test"
        yield Line(title, "MB/s", medians[work], (at_least(target),), _shares(medians, work))


def _watched(broker: Broker, work: str, run: Callable[[], float]) -> dict[str, float]:
    """The tool's own figure, and how many processors it and the broker took, the tool's start-up included."""
    begun, tool = time.perf_counter(), _children_s()
    server = cpu_seconds(broker.pid) if broker.pid else 0.0
    rate = run()
    seconds = time.perf_counter() - begun
    figures = {work: rate, f"{work} client": (_children_s() - tool) / seconds}
    if broker.pid:
        figures[f"{work} server"] = (cpu_seconds(broker.pid) - server) / seconds
    return figures


def _children_s() -> float:
    """Processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _shares(medians: Medians, work: str) -> str:
    client, server = medians[f"{work} client"], medians[f"{work} server"]
    return (
        f"of {os.cpu_count()} processors the tool's JVM took {client[ODRADEK]:.1f} and Odradek {server[ODRADEK]:.1f};"
        f" with Kafka {client[KAFKA]:.1f} and {server[KAFKA]:.1f}"
    )


def _produce(tools: JavaTools, address: str, name: str, records: int) -> float:
    said = tools.run(
        "kafka-producer-perf-test", "--topic", name, "--num-records", str(records), "--record-size", str(_SIZE),
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={address}", "acks=all",
    )  # fmt: skip
    rate = re.findall(r"([\d.]+) records/sec", said)[-1]
    return float(rate) * _SIZE / 1e6


def _consume(tools: JavaTools, address: str, name: str, records: int) -> float:
    """Of the time in which records were fetched: joining the group is left out, as the tool does for this figure."""
    said = tools.run(
        "kafka-consumer-perf-test", "--topic", name, "--messages", str(records), "--bootstrap-server", address,
        "--timeout", "30000",
    )  # fmt: skip
    rows = list(csv.reader((line for line in said.splitlines() if "," in line), skipinitialspace=True))
    columns = next(row for row in rows if "fetch.nMsg.sec" in row)
    return float(rows[-1][columns.index("fetch.nMsg.sec")]) * _SIZE / 1e6
