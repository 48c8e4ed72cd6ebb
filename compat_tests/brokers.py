"""The broker under test behind one interface: Odradek (default) or Apache Kafka, chosen with `--broker`.

Owns the start of each kind for these tests. Both take Kafka's configuration names.
"""

from collections.abc import Mapping
from typing import Protocol

from odradek_peers import ApacheKafka

# Small enough that a test reaches the limits, the same for every broker.
COMMON_CONFIG: Mapping[str, str] = {
    "message.max.bytes": "1048588",
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.retention.check.interval.ms": "500",
}


class Broker(Protocol):
    """A broker that a test may also stop, kill and start again on the same data and address."""

    @property
    def bootstrap_servers(self) -> str: ...

    def start(self) -> object: ...

    def stop(self) -> None: ...

    def kill(self) -> None: ...

    def close(self) -> None: ...


def new_broker(name: str, config: Mapping[str, str]) -> Broker:
    """Return a new broker of the given kind, not started; `kafka-4.3.0` and `kafka-3.9.1` are Apache Kafka."""
    settings = {**COMMON_CONFIG, **config}
    if name == "odradek":
        # Imported late, so that the tests run with Kafka even if Odradek's import fails.
        from compat_tests.odradek_broker import OdradekBroker

        return OdradekBroker(settings)
    return ApacheKafka(name.removeprefix("kafka-"), config=settings)
