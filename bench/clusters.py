"""Clusters of three brokers under measurement: Odradek in three processes and in one, Apache Kafka in three.

Starts, stops and kills their brokers, without pinning them to a processor.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from odradek_peers import KafkaCluster, ZooKeeperServer

from bench.brokers import KAFKA_CONFIG, KAFKA_HEAP, KAFKA_JVM, Odradek
from bench.measurement import KAFKA, ODRADEK
from bench.process import listening_on
from bench.ready import wait_for_metadata
from bench.session import Session
from odradek import Cluster
from odradek.client.client import parse_address

BROKERS = 3
ONE_PROCESS = "Odradek in one process"
# Kafka's default of broker.session.timeout.ms.
_SESSION_TIMEOUT_MS = 9000


class Brokers(Protocol):
    """A cluster of brokers 0, 1 and 2, which keep their data until `close`."""

    name: str

    @property
    def addresses(self) -> list[str]: ...

    @property
    def pids(self) -> list[int]: ...

    def start(self, broker: int | None = None) -> None: ...

    def stop(self, broker: int | None = None) -> None: ...

    def kill(self, broker: int | None = None) -> None: ...

    def close(self) -> None: ...


class OdradekProcesses:
    """Three processes of `odradek up --zookeeper`. The processor time and memory of their ZooKeeper, which syncs its
    writes as Kafka's controllers do, count as theirs."""

    name = ODRADEK

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._zookeeper = ZooKeeperServer(directory=folder / "zookeeper", forced=True)
        self._processes = [
            Odradek(
                folder / str(broker),
                f"--zookeeper={self._zookeeper.connect_string}/bench",
                f"--broker-id={broker}",
                f"--option=zookeeper.session.timeout.ms={_SESSION_TIMEOUT_MS}",
            )
            for broker in range(BROKERS)
        ]

    @property
    def addresses(self) -> list[str]:
        return [process.address for process in self._processes]

    @property
    def pids(self) -> list[int]:
        return [pid for pid in (self._zookeeper.pid, *(process.pid for process in self._processes)) if pid is not None]

    def start(self, broker: int | None = None) -> None:
        if self._zookeeper.pid is None:
            self._zookeeper.start()
        for process in self._processes if broker is None else [self._processes[broker]]:
            process.start()
        running = [process for process in self._processes if process.pid is not None]
        for process in running:
            wait_for_metadata(parse_address(process.address), brokers=len(running))

    def stop(self, broker: int | None = None) -> None:
        for process in self._processes if broker is None else [self._processes[broker]]:
            process.stop()

    def kill(self, broker: int | None = None) -> None:
        for process in self._processes if broker is None else [self._processes[broker]]:
            process.kill()

    def close(self) -> None:
        self.kill()
        self._zookeeper.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class OdradekCluster:
    """`Cluster(brokers=3, process=True)`: one process; each broker can be killed."""

    name = ONE_PROCESS

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cluster = Cluster(brokers=BROKERS, process=True, data=folder)

    @property
    def addresses(self) -> list[str]:
        return self._cluster.bootstrap_servers.split(",")

    @property
    def pids(self) -> list[int]:
        found = {listening_on(parse_address(self.addresses[broker])[1]) for broker in self._cluster.brokers}
        return [pid for pid in found if pid is not None]

    def start(self, broker: int | None = None) -> None:
        self._cluster.start(broker)

    def stop(self, broker: int | None = None) -> None:
        self._cluster.stop(broker)

    def kill(self, broker: int | None = None) -> None:
        self._cluster.kill(broker)

    def close(self) -> None:
        self._cluster.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class KafkaProcesses:
    """Three nodes in combined KRaft mode, with the JVM options of Kafka's scripts."""

    name = KAFKA

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cluster = KafkaCluster(
            brokers=BROKERS, directory=folder, config=KAFKA_CONFIG, heap=KAFKA_HEAP, jvm_options=KAFKA_JVM
        )

    @property
    def addresses(self) -> list[str]:
        return self._cluster.bootstrap_servers.split(",")

    @property
    def pids(self) -> list[int]:
        return self._cluster.pids

    def start(self, broker: int | None = None) -> None:
        self._cluster.start(broker)

    def stop(self, broker: int | None = None) -> None:
        self._cluster.stop(broker)

    def kill(self, broker: int | None = None) -> None:
        self._cluster.kill(broker)

    def close(self) -> None:
        self._cluster.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def clusters(session: Session, *kinds: Callable[[Path], Brokers]) -> Iterator[list[Brokers]]:
    """Make a cluster of each kind without starting it; the end of the block kills them and deletes their data."""
    folder = session.new_folder()
    made = [kind(folder / str(number)) for number, kind in enumerate(kinds)]
    try:
        yield made
    finally:
        for cluster in made:
            cluster.close()


def start_from_command_line(session: Session) -> tuple[float, Odradek]:
    """Start `odradek up --brokers 3`. Return the seconds to Metadata with all brokers, and the program; the caller must
    `close` it."""
    program = Odradek(session.new_folder(), brokers=BROKERS)
    begun = time.perf_counter()
    program.start()
    wait_for_metadata(parse_address(program.address), brokers=BROKERS)
    return time.perf_counter() - begun, program
