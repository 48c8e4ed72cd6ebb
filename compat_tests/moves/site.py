"""The place of a broker, which Kafka and Odradek own in turn: an address, two log directories, and perhaps a ZooKeeper.

Owns how each owner is started on it and ended. An owner is told nothing of the one before: what it
knows, it has from the files.
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
    # Soon, so that the test sees what compaction leaves, and that what was deleted goes away.
    "log.cleaner.backoff.ms": "500",
    "log.segment.delete.delay.ms": "1000",
    # Soon enough for kill -9: where a log begins is known from its checkpoint only.
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
}
# As soon for Kafka's first look, which is else half a minute after its start.
_OF_KAFKA = {"log.initial.task.delay.ms": "500"}
# No session ends by itself here, on a busy machine either.
_OVER_ZOOKEEPER = {"zookeeper.session.timeout.ms": "18000"}


class Site:
    """`start` an owner, `end` it, start another. With `zookeeper`, the connect string, it is broker 1 of what is kept
    there; without, a cluster of its own."""

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
    def alone(self) -> bool:
        """It is its own controller, whoever has it."""
        return self._zookeeper is None

    def start(self, owner: Owner) -> None:
        """Returns when it answers."""
        if owner == "kafka":
            self._kafka.start()
        else:
            self._start_odradek()

    def end(self, how: End) -> None:
        """In order, or by kill -9; nothing of it is left in ZooKeeper then."""
        if self._odradek is not None:
            self._odradek.send_signal(signal.SIGTERM if how == "stop" else signal.SIGKILL)
            code = self._odradek.wait(WAIT_S)
            self._odradek = None
            assert code == (0 if how == "stop" else -signal.SIGKILL), self.told()
        elif how == "stop":
            self._kafka.stop()
        else:
            self._kafka.kill()
        if self._zookeeper is not None:
            self._end_session(self._zookeeper)

    def close(self) -> None:
        """Whoever runs is ended."""
        if self._odradek is not None:
            self._odradek.kill()
            self._odradek.wait()
        self._kafka.kill()

    def told(self) -> str:
        """The last lines of Odradek's log."""
        return (self._root / "odradek.log").read_text()[-3000:]

    def directories(self) -> dict[str, Path]:
        """Every directory of a partition and what was made of it, by name: in which log directory it stands."""
        return {each.name: place for place in self.log_dirs for each in place.iterdir() if each.is_dir()}

    def _start_odradek(self) -> None:
        host, _, port = self.bootstrap_servers.rpartition(":")
        config = dict(self._config)
        place = ["--brokers=1"]
        if self._zookeeper is not None:
            place = [f"--zookeeper={self._zookeeper}", f"--broker-id={BROKER}"]
        else:
            config["node.id"] = str(BROKER)
        self._odradek, _ = up(self._root / "odradek.log", [*place, f"--host={host}", f"--port={port}"], config)
        # It listens before its controller has told it of anybody, and lets whoever asks wait for that.
        try:
            wait_until_ready(host, int(port), timeout=WAIT_S, alive=lambda: True)
        except NotReady as failure:
            raise NotReady(f"{failure}\n{self.told()}") from failure

    def _end_session(self, zookeeper: str) -> None:
        """What ZooKeeper does when the session of a broker that was killed is over: Kafka's broker, at its start, does
        not wait for that."""
        client = KazooClient(zookeeper)
        client.start()
        try:
            for path in (f"/brokers/ids/{BROKER}", "/controller"):
                with suppress(NoNodeError):
                    client.delete(path)
        finally:
            client.stop()
            client.close()
