"""The clusters under test behind one interface: three brokers with the ids 0, 1 and 2, each in its own rack.

Broker 0 always runs, because in Kafka's cluster it is the only controller.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from odradek_peers import KafkaCluster

from odradek import Cluster

RACKS = ("a", "b", "c")
# A short session timeout, so that a killed broker is fenced soon.
CONFIG = {
    "offsets.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "3000",
    # Only the tests elect leaders.
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
    """Run a cluster, `odradek` or `kafka`, until the end of the block."""
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
