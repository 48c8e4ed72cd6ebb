"""A cluster of Apache Kafka: several KRaft nodes on loopback, which are brokers, and all or some of them controllers.

Owns the configuration of the cluster; `server` runs a single node.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek_peers.jars import KAFKA_4_3
from odradek_peers.processes import LOOPBACK
from odradek_peers.server import ApacheKafka, new_cluster_id

_REPLICATION_FACTOR_MAX = 3
_INTERNAL_TOPICS = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)


class KafkaCluster:
    """Nodes with the ids 0, 1, 2 …; each can be stopped, killed and started again. A context manager runs them.

    With `controllers=1` node 0 alone is the quorum: all other nodes may be down together, but not node 0. The ports are
    free ones and stay the same. Without `directory` the data is in a temporary folder, which `close` deletes; otherwise
    each node has a folder in it.
    """

    def __init__(
        self,
        version: str = KAFKA_4_3,
        *,
        brokers: int = 3,
        controllers: int | None = None,
        racks: Sequence[str] | None = None,
        directory: Path | None = None,
        config: Mapping[str, str] | None = None,
        heap: str = "512M",
        jvm_options: tuple[str, ...] = (),
    ) -> None:
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix=f"kafka-cluster-{version}-")
        self.directory = directory or Path(self._temporary.name if self._temporary else "")
        cluster_id = new_cluster_id()
        self.nodes = [
            ApacheKafka(
                version,
                directory=self.directory / f"node-{node}",
                node_id=node,
                cluster_id=cluster_id,
                heap=heap,
                jvm_options=jvm_options,
            )
            for node in range(brokers)
        ]
        quorum = self.nodes[:controllers]
        voters = ",".join(f"{node.node_id}@{LOOPBACK}:{node.controller_port}" for node in quorum)
        for node in self.nodes:
            node.config = {
                "controller.quorum.voters": voters,
                **({} if node in quorum else _broker_role(node)),
                **dict.fromkeys(_INTERNAL_TOPICS, str(min(brokers, _REPLICATION_FACTOR_MAX))),
                **({"broker.rack": racks[node.node_id]} if racks else {}),
                **(config or {}),
            }

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes, separated by commas."""
        return ",".join(node.bootstrap_servers for node in self.nodes)

    @property
    def pids(self) -> list[int]:
        """The process ids of the running nodes."""
        return [node.pid for node in self.nodes if node.pid is not None]

    def start(self, broker: int | None = None) -> Self:
        """Start all nodes, or one, and wait until every running node knows all running nodes."""
        for node in self.nodes if broker is None else [self.nodes[broker]]:
            node.launch()
        for node in self.nodes:
            if node.pid is not None:
                node.wait(brokers=len(self.pids))
        return self

    def stop(self, broker: int | None = None) -> None:
        """Stop all nodes, or one, with SIGTERM."""
        if broker is not None:
            self.nodes[broker].stop()
            return
        # All nodes together, because a node without a quorum cannot move its leaderships and waits for a timeout.
        for node in self.nodes:
            node.terminate()
        for node in self.nodes:
            node.stop()

    def kill(self, broker: int | None = None) -> None:
        """Send SIGKILL to all nodes, or to one."""
        for node in self.nodes if broker is None else [self.nodes[broker]]:
            node.kill()

    def close(self) -> None:
        """Stop all nodes, and delete temporary data."""
        if self._temporary:
            self.kill()
            with contextlib.suppress(OSError):
                self._temporary.cleanup()
        else:
            self.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _broker_role(node: ApacheKafka) -> dict[str, str]:
    listeners = f"PLAINTEXT://{node.bootstrap_servers}"
    return {"process.roles": "broker", "listeners": listeners, "advertised.listeners": listeners}
