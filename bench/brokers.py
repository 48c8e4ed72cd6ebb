"""The brokers under measurement: Odradek from its command line, Apache Kafka from its jars, and running peers.

Starts and stops them, without pinning them to a processor.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol

from odradek_peers import ApacheKafka
from odradek_peers.processes import free_ports

from bench.measurement import KAFKA, ODRADEK
from bench.process import listening_on
from bench.ready import wait_for_metadata
from odradek.client.client import parse_address

_HOST = "127.0.0.1"
# The options of kafka-server-start.sh and kafka-run-class.sh.
KAFKA_HEAP = "1G"
KAFKA_JVM = (
    "-Xms1G", "-server", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15",
)  # fmt: skip
# Kafka keeps deleted segments for a minute, Odradek does not. Without this setting, they would fill the page cache.
KAFKA_CONFIG = {"log.segment.delete.delay.ms": "200"}


class Broker(Protocol):
    """A broker that serves `address` between `start` and `stop`, and keeps its data until `close`."""

    name: str

    @property
    def address(self) -> str: ...

    @property
    def pid(self) -> int | None:
        """The process id, None if the process is not visible."""

    def start(self) -> float:
        """Start the broker. Return the seconds from the command to its first Metadata response."""

    def stop(self) -> None: ...

    def close(self) -> None: ...


class Odradek:
    """`odradek up --data FOLDER`; several brokers have consecutive ports."""

    name = ODRADEK

    def __init__(self, folder: Path, *more: str, brokers: int = 1) -> None:
        self._folder = folder
        self._port = _free_ports_in_a_row(brokers)
        self._more = ["--brokers", str(brokers), *more] if brokers > 1 else more
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{_HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> float:
        self._folder.mkdir(parents=True, exist_ok=True)
        program = Path(sys.executable).with_name("odradek")
        with (self._folder / "output.log").open("ab") as output:
            begun = time.perf_counter()
            self._process = process = subprocess.Popen(
                [
                    program,
                    "up",
                    "--host",
                    _HOST,
                    "--port",
                    str(self._port),
                    "--data",
                    self._folder / "data",
                    *self._more,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_for_metadata((_HOST, self._port), alive=lambda: process.poll() is None)
        return time.perf_counter() - begun

    def stop(self) -> None:
        if self._process:
            self._process.terminate()
            self._process.wait(120)
            self._process = None

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


class Kafka:
    """One node of Apache Kafka in KRaft mode, with the JVM options of Kafka's scripts."""

    name = KAFKA

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kafka = ApacheKafka(directory=folder, config=KAFKA_CONFIG, heap=KAFKA_HEAP, jvm_options=KAFKA_JVM)

    @property
    def address(self) -> str:
        return self._kafka.bootstrap_servers

    @property
    def pid(self) -> int | None:
        return self._kafka.pid

    def start(self) -> float:
        """Start the server. Before its first timed start, format the folder and start and stop the server once."""
        if not self._kafka.data_directory.exists():
            self._kafka.start()
            self._kafka.stop()
        begun = time.perf_counter()
        self._kafka.start()
        return time.perf_counter() - begun

    def stop(self) -> None:
        self._kafka.stop()

    def close(self) -> None:
        self._kafka.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Peer:
    """`PEER=name=host:port`: a running broker, which the bench neither starts nor stops."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.address = address

    @property
    def pid(self) -> int | None:
        return listening_on(parse_address(self.address)[1])

    def start(self) -> float:
        begun = time.perf_counter()
        wait_for_metadata(parse_address(self.address))
        return time.perf_counter() - begun

    def stop(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _free_ports_in_a_row(count: int) -> int:
    """Return the first of `count` consecutive free ports."""
    while True:
        (first,) = free_ports(1)
        with suppress(OSError), ExitStack() as held:
            for port in range(first, first + count):
                held.enter_context(socket.create_server((_HOST, port)))
            return first
