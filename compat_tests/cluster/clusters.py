"""The clusters under test behind one interface: three brokers with the ids 0, 1 and 2, each on a rack of its own.

Broker 0 runs all the time: in Kafka it is the controller too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from odradek_peers import KafkaCluster

from odradek import Cluster

RACKS = ("a", "b", "c")
# Short, so that a test need not wait long until a killed broker is taken for dead.
CONFIG = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",
    # Elections are the tests' business.
    "auto.leader.rebalance.enable": "false",
}


class BrokerCluster(Protocol):
    """Brokers that a test may stop, kill and start again on the same data and address."""

    @property
    def bootstrap_servers(self) -> str: ...

    def start(self, broker: int | None = None) -> object: ...

    def stop(self, broker: int | None = None) -> None: ...

    def kill(self, broker: int | None = None) -> None: ...

    def close(self) -> None: ...


@contextmanager
def running(name: str) -> Iterator[BrokerCluster]:
    """`odradek` or `kafka`, started, for the length of the block."""
    cluster: BrokerCluster = (
        Cluster(brokers=3, racks=RACKS, process=True, config=CONFIG)
        if name == "odradek"
        else KafkaCluster(controllers=1, racks=RACKS, config=CONFIG)
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
