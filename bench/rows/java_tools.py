"""Kafka's ProducerPerformance and ConsumerPerformance with 100-byte records."""

from __future__ import annotations

import csv
import os
import re
import resource
import time
from collections.abc import Callable, Iterator

from odradek_peers import JavaTools

from bench.brokers import Broker
from bench.measurement import KAFKA, ODRADEK, Measurement, at_least
from bench.process import cpu_seconds
from bench.session import Medians, Session
from bench.topics import topic

_RECORDS = 3_000_000
_SIZE = 100
# The options of kafka-run-class.sh.
_JVM = ("-Xmx512M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:MaxInlineLevel=15")


def measurements(session: Session) -> Iterator[Measurement]:
    records = session.sized(_RECORDS)
    tools = JavaTools(options=_JVM)

    def measure(broker: Broker) -> dict[str, float]:
        with topic(broker.address) as name:
            produced = _measured(broker, "produce", lambda: _produce(tools, broker.address, name, records))
            consumed = _measured(broker, "consume", lambda: _consume(tools, broker.address, name, records))
            return produced | consumed

    medians = session.in_turn(session.warm(), measure)
    for work, tool, target in (("produce", "producer", 1.5), ("consume", "consumer", 1.0)):
        title = f"{work} 100 B, kafka-{tool}-perf-test"
        yield Measurement(title, "MB/s", medians[work], (at_least(target),), _shares(medians, work))


def _measured(broker: Broker, work: str, run: Callable[[], float]) -> dict[str, float]:
    """Return the tool's figure, and the processors that the tool, its start included, and the broker used."""
    begun, tool = time.perf_counter(), _children_s()
    server = cpu_seconds(broker.pid) if broker.pid else 0.0
    rate = run()
    seconds = time.perf_counter() - begun
    figures = {work: rate, f"{work} client": (_children_s() - tool) / seconds}
    if broker.pid:
        figures[f"{work} server"] = (cpu_seconds(broker.pid) - server) / seconds
    return figures


def _children_s() -> float:
    """Return the processor time of all ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _shares(medians: Medians, work: str) -> str:
    client, server = medians[f"{work} client"], medians[f"{work} server"]
    return (
        f"of {os.cpu_count()} processors, the tool's JVM used {client[ODRADEK]:.1f} and Odradek {server[ODRADEK]:.1f};"
        f" with Kafka {client[KAFKA]:.1f} and {server[KAFKA]:.1f}"
    )


def _produce(tools: JavaTools, address: str, name: str, records: int) -> float:
    output = tools.run(
        "kafka-producer-perf-test", "--topic", name, "--num-records", str(records), "--record-size", str(_SIZE),
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={address}", "acks=all",
    )  # fmt: skip
    rate = re.findall(r"([\d.]+) records/sec", output)[-1]
    return float(rate) * _SIZE / 1e6


def _consume(tools: JavaTools, address: str, name: str, records: int) -> float:
    """Return the rate while records were fetched; the tool leaves out the join of the group in this figure."""
    output = tools.run(
        "kafka-consumer-perf-test", "--topic", name, "--messages", str(records), "--bootstrap-server", address,
        "--timeout", "30000",
    )  # fmt: skip
    rows = list(csv.reader((line for line in output.splitlines() if "," in line), skipinitialspace=True))
    columns = next(row for row in rows if "fetch.nMsg.sec" in row)
    return float(rows[-1][columns.index("fetch.nMsg.sec")]) * _SIZE / 1e6
