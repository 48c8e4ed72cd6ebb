"""Kafka's own ProducerPerformance and ConsumerPerformance, 100-byte records, from its own jars."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from odradek_peers import JavaTools

from bench.brokers import Broker
from bench.line import Line, at_least
from bench.session import Session
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
            return {
                "produce": _produce(tools, broker.address, name, records),
                "consume": _consume(tools, broker.address, name, records),
            }

    medians = session.in_turn(session.warm(), measure)
    yield Line("produce 100 B, kafka-producer-perf-test", "MB/s", medians["produce"], (at_least(1.5),))
    yield Line("consume 100 B, kafka-consumer-perf-test", "MB/s", medians["consume"], (at_least(1.0),))


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
