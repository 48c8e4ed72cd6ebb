"""What a run needs of the brokers under test, of whichever kind their cluster is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from odradek_broker.node import Node
from odradek_broker.replication.partition import Partition
from simulation.process import Process

SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "replica.lag.time.max.ms": "4000",
    "replica.socket.timeout.ms": "4000",
    "replica.fetch.backoff.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "2000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "log.retention.check.interval.ms": "10000",
    "log.cleaner.backoff.ms": "1500",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "group.initial.rebalance.delay.ms": "500",
    "group.min.session.timeout.ms": "1000",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "leader.imbalance.check.interval.seconds": "20",
}


class Cluster(Protocol):
    """Brokers 0 and on, on the hosts `broker-0` and on. Who changes what runs waits for who does so already."""

    ids: tuple[int, ...]
    hosts: list[str]
    log_dirs: int
    """How many each broker has."""

    @property
    def processes(self) -> Sequence[Process]: ...

    @property
    def running(self) -> Mapping[int, Node]: ...

    def in_sync(self, topic: str, index: int) -> Mapping[int, Partition]:
        """The replicas, of brokers that run, that must have everything that is committed."""
        ...

    def unsettled(self) -> str:
        """What the cluster itself has still to do when all is well."""
        ...

    async def start(self) -> None: ...

    async def kill(self, broker: int) -> bool:
        """As kill -9: what was written is there. False if it did not run."""
        ...

    async def lose_power(self, broker: int) -> bool:
        """What was not synced is gone, and nobody hears of it. False if it does not run, or if it is the only one in
        sync somewhere: nothing could save that."""
        ...

    async def stop(self, broker: int) -> bool:
        """In an orderly way. False if it does not run."""
        ...

    async def begin(self, broker: int) -> None:
        """Start it again, if it does not run."""
        ...

    async def stand_still(self, process: Process, seconds: float) -> None:
        """As SIGSTOP, and SIGCONT later."""
        ...

    def disk_trouble(self, broker: int) -> AbstractContextManager[bool]:
        """While it lasts the broker may lose its disks, and end. False if that must not befall it now."""
        ...

    async def restart_all(self, *, orderly: bool) -> None:
        """All brokers are stopped or killed, and begin again."""
        ...

    async def end(self) -> None: ...


LOG_DIRS = ("data", "more")
AGAIN_S = 1.0
"""After which a process that could not begin is started again."""


def host_settings(broker: int, host: str, log_dirs: int) -> dict[str, str]:
    return {
        "broker.rack": f"rack-{broker}",
        "log.dirs": ",".join(f"/{host}/{name}" for name in LOG_DIRS[:log_dirs]),
        "listeners": f"PLAINTEXT://{host}:9092",
    }


async def stop_for(process: Process, seconds: float) -> None:
    """Nothing of the process runs for so long."""
    from simulation.virtual_loop import VirtualLoop

    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.stop_process(process)
    await asyncio.sleep(seconds)
    loop.continue_process(process)
