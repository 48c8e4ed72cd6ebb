"""Odradek as the broker under test, in its own process, started with `odradek.Cluster`."""

from collections.abc import Mapping

from odradek import Cluster


class OdradekBroker:
    """`Cluster(process=True)` with the common settings of these tests."""

    def __init__(self, config: Mapping[str, str]) -> None:
        self.cluster = Cluster(process=True, config={"node.id": "1", **config})

    @property
    def bootstrap_servers(self) -> str:
        """The broker's host:port."""
        return self.cluster.bootstrap_servers

    def start(self) -> None:
        """Start the broker, with the data of its last run if there are any."""
        self.cluster.start()

    def stop(self) -> None:
        """Stop the broker with a controlled shutdown; the data stays."""
        self.cluster.stop()

    def kill(self) -> None:
        """Send SIGKILL; the data stays."""
        self.cluster.kill()

    def close(self) -> None:
        """Stop the broker and delete its data."""
        self.cluster.close()
