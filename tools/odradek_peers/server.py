"""One node of Apache Kafka on loopback: a combined KRaft broker and controller, or a broker over ZooKeeper.

Owns its configuration, formatting, start and end. The data stays in `directory`, so that a node can be stopped or
killed and started again on its data, or another broker can take over the directory.
"""

import contextlib
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek_peers.jars import KAFKA_4_3, libs
from odradek_peers.logconf import log_to_file
from odradek_peers.processes import LOOPBACK, free_ports, killed_with_parent, log_tail, wait_or_kill
from odradek_peers.ready import NotReady, wait_until_ready

_START_SECONDS = 120.0
_STOP_SECONDS = 30.0

# A single node has the only replica of internal topics. A group does not wait three seconds for more members.
_DEFAULTS = {
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
}


class ApacheKafka:
    """A broker that can be started, stopped, killed and started again; as a context manager it runs in the block.

    It chooses a free port and keeps it. Without `directory` the data is in a temporary folder, which `close`
    deletes. With `zookeeper`, the connect string, it is a broker of the cluster there (3.9).
    """

    def __init__(
        self,
        version: str = KAFKA_4_3,
        *,
        directory: Path | None = None,
        config: Mapping[str, str] | None = None,
        node_id: int = 1,
        cluster_id: str | None = None,
        heap: str = "512M",
        jvm_options: tuple[str, ...] = (),
        zookeeper: str | None = None,
    ) -> None:
        self.version = version
        self._zookeeper = zookeeper
        self.node_id = node_id
        self.config = dict(config or {})
        self._cluster_id = cluster_id or new_cluster_id()
        self.port, self.controller_port = free_ports(2)
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix=f"kafka-{version}-")
        self.directory = directory or Path(self._temporary.name if self._temporary else "")
        self._java = ["java", f"-Xmx{heap}", "-XX:+UseG1GC", "-Djava.awt.headless=true", *jvm_options]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """The broker's host:port."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def data_directory(self) -> Path:
        """The log directory: meta.properties, the metadata log and the partitions."""
        return self.directory / "data"

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process else None

    def start(self) -> Self:
        """Start the broker, formatting an empty directory first, and wait until it responds."""
        self.launch()
        self.wait()
        return self

    def launch(self) -> None:
        """Start the broker, formatting an empty directory first. The system kills it when the calling thread ends."""
        assert self._process is None, "already started"
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self._write_properties()
        classpath = f"{libs(self.version)}/*"
        java = [*self._java, log_to_file(self.version, self.directory), "-cp", classpath]
        if self._zookeeper is None and not (self.data_directory / "meta.properties").exists():
            self._format([*java, "-XX:TieredStopAtLevel=1"], properties)
        with (self.directory / "stdout.log").open("ab") as output:
            self._process = subprocess.Popen(
                [*killed_with_parent(), *java, "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self, brokers: int = 1) -> None:
        """Wait until the broker responds and its metadata has `brokers` brokers."""
        process = self._process
        assert process is not None, "not started"
        try:
            wait_until_ready(
                LOOPBACK, self.port, brokers=brokers, timeout=_START_SECONDS, alive=lambda: process.poll() is None
            )
        except NotReady as failure:
            self.kill()
            raise NotReady(f"{failure}\n{self.log_tail()}") from failure

    def terminate(self) -> None:
        """Send SIGTERM; `stop` also waits for the end."""
        if self._process is not None:
            self._process.terminate()

    def stop(self) -> None:
        """Stop the broker with SIGTERM, and with SIGKILL after a timeout."""
        if self._process is None:
            return
        self.terminate()
        wait_or_kill(self._process, _STOP_SECONDS)
        self._process = None

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def close(self) -> None:
        """Stop the broker, and delete temporary data."""
        self.stop()
        if self._temporary:
            with contextlib.suppress(OSError):
                self._temporary.cleanup()

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the server's log and of its standard output."""
        return log_tail(self.directory, lines)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_properties(self) -> Path:
        listeners = f"PLAINTEXT://{LOOPBACK}:{self.port},CONTROLLER://{LOOPBACK}:{self.controller_port}"
        kraft = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "controller.quorum.voters": f"{self.node_id}@{LOOPBACK}:{self.controller_port}",
        }
        over_zookeeper = {
            "broker.id": str(self.node_id),
            "listeners": f"PLAINTEXT://{LOOPBACK}:{self.port}",
            "zookeeper.connect": self._zookeeper or "",
        }
        settings = {
            **(kraft if self._zookeeper is None else over_zookeeper),
            "log.dirs": str(self.data_directory),
            **_DEFAULTS,
            **self.config,
        }
        file = self.directory / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return file

    def _format(self, java: list[str], properties: Path) -> None:
        # With "=", because an id may begin with a dash.
        identity = f"--cluster-id={self._cluster_id}"
        command = [*java, "kafka.tools.StorageTool", "format", identity, "-c", str(properties)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"Kafka's StorageTool could not format {self.data_directory}:\n{done.stdout}")


def new_cluster_id() -> str:
    """Return a random cluster id in the format of Kafka's StorageTool."""
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
