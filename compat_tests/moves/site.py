"""The site of a broker, which Kafka and Odradek own in turn: an address, two log directories, and perhaps a ZooKeeper.

Starts and ends each owner. An owner knows the former owner only from the files.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from odradek_peers import KAFKA_3_9, KAFKA_4_3, ApacheKafka
from odradek_peers.ready import NotReady, wait_until_ready

from compat_tests.odradek_up import up

Owner = Literal["kafka", "odradek"]
End = Literal["stop", "kill"]

WAIT_S = 60.0
BROKER = 1
_CONFIG: Mapping[str, str] = {
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    # Short delays, so that the test sees the result of compaction and the removal of deleted logs.
    "log.cleaner.backoff.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    # Short intervals because of kill -9: the log start offset is stored in the checkpoint only.
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
}
# Kafka's first checkpoint is otherwise half a minute after its start.
_OF_KAFKA = {"log.initial.task.delay.ms": "500"}
# Long enough that no session expires on a busy machine.
_OVER_ZOOKEEPER = {"zookeeper.session.timeout.ms": "18000"}


class Site:
    """`start` an owner, `end` it, and start another. With `zookeeper`, a connect string, an owner is broker 1 of that
    cluster; without it, an owner is a combined broker and controller."""

    def __init__(self, root: Path, zookeeper: str | None) -> None:
        self._root = root
        self._zookeeper = zookeeper
        self.log_dirs = [root / "data", root / "more"]
        config = {**_CONFIG, "log.dirs": ",".join(map(str, self.log_dirs))}
        if zookeeper is not None:
            config |= _OVER_ZOOKEEPER
        self._config = config
        version = KAFKA_4_3 if zookeeper is None else KAFKA_3_9
        self._kafka = ApacheKafka(
            version,
            directory=root,
            config={**config, **_OF_KAFKA},
            node_id=BROKER,
            heap="320M",
            zookeeper=zookeeper,
        )
        self._odradek: subprocess.Popen[str] | None = None
        self.bootstrap_servers = self._kafka.bootstrap_servers

    @property
    def is_combined(self) -> bool:
        """True if an owner is a combined broker and controller, without ZooKeeper."""
        return self._zookeeper is None

    def start(self, owner: Owner) -> None:
        """Start an owner and wait until it responds to requests."""
        if owner == "kafka":
            self._kafka.start()
        else:
            self._start_odradek()

    def end(self, how: End) -> None:
        """End the owner with a controlled shutdown or SIGKILL, and remove its ephemeral znodes."""
        if self._odradek is not None:
            self._odradek.send_signal(signal.SIGTERM if how == "stop" else signal.SIGKILL)
            code = self._odradek.wait(WAIT_S)
            self._odradek = None
            assert code == (0 if how == "stop" else -signal.SIGKILL), self.log_tail()
        elif how == "stop":
            self._kafka.stop()
        else:
            self._kafka.kill()
        if self._zookeeper is not None:
            self._end_session(self._zookeeper)

    def close(self) -> None:
        """Kill the running owner."""
        if self._odradek is not None:
            self._odradek.kill()
            self._odradek.wait()
        self._kafka.kill()

    def log_tail(self) -> str:
        """Return the last lines of Odradek's log."""
        return (self._root / "odradek.log").read_text()[-3000:]

    def directories(self) -> dict[str, Path]:
        """Return the log directory of every partition's directory, by name, including deleted and stray ones."""
        return {each.name: directory for directory in self.log_dirs for each in directory.iterdir() if each.is_dir()}

    def _start_odradek(self) -> None:
        host, _, port = self.bootstrap_servers.rpartition(":")
        config = dict(self._config)
        mode = ["--brokers=1"]
        if self._zookeeper is not None:
            mode = [f"--zookeeper={self._zookeeper}", f"--broker-id={BROKER}"]
        else:
            config["node.id"] = str(BROKER)
        self._odradek, _ = up(self._root / "odradek.log", [*mode, f"--host={host}", f"--port={port}"], config)
        # The broker listens before its first metadata update; requests wait for the update.
        try:
            wait_until_ready(host, int(port), timeout=WAIT_S, alive=lambda: True)
        except NotReady as failure:
            raise NotReady(f"{failure}\n{self.log_tail()}") from failure

    def _end_session(self, zookeeper: str) -> None:
        """Delete the ephemeral znodes of a killed broker, as ZooKeeper does when the session expires. Kafka's broker
        does not wait for that at its start."""
        client = KazooClient(zookeeper)
        client.start()
        try:
            for path in (f"/brokers/ids/{BROKER}", "/controller"):
                with suppress(NoNodeError):
                    client.delete(path)
        finally:
            client.stop()
            client.close()
