"""Odradek as the broker under test: in a process of its own, started with `odradek.Cluster`."""

from collections.abc import Mapping

from odradek import Cluster


class OdradekBroker:
    """`Cluster(process=True)`, with the settings that all brokers of these tests get."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self.cluster = Cluster(process=True, config={"node.id": "1", **config})

    @property
    def bootstrap_servers(self) -> str:
        """host:port, as clients want it."""
        return self.cluster.bootstrap_servers

    def start(self) -> None:
        """Start it, the first time or on the data that is there."""
        self.cluster.start()

    def stop(self) -> None:
        """End it in order; data stays."""
        self.cluster.stop()

    def kill(self) -> None:
        """kill -9; data stays."""
        self.cluster.kill()

    def close(self) -> None:
        """Stop it and forget its data."""
        self.cluster.close()
