"""The brokers under test: the protocol that all kinds of cluster implement, and their common settings."""

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
    """Brokers 0, 1 … on the hosts `broker-0`, `broker-1` …. A start or stop of a process waits for the previous one."""

    ids: tuple[int, ...]
    hosts: list[str]
    log_dirs: int
    """The number of log directories per broker."""

    @property
    def processes(self) -> Sequence[Process]: ...

    @property
    def running(self) -> Mapping[int, Node]: ...

    def in_sync(self, topic: str, index: int) -> Mapping[int, Partition]:
        """Return the replicas in the ISR on running brokers, which must have every committed record."""
        ...

    def unsettled(self) -> str:
        """Describe why the cluster has not yet recovered from the faults; an empty string once it has."""
        ...

    async def start(self) -> None: ...

    async def kill(self, broker: int) -> bool:
        """Kill a broker as SIGKILL does: its disk keeps unsynced data. Return False if it does not run."""
        ...

    async def lose_power(self, broker: int) -> bool:
        """Cut a broker's power: its disk may lose unsynced data, and its connections stay silent. Return False if it
        does not run, or if it is the only replica in some ISR, so that the loss of records would be no bug."""
        ...

    async def stop(self, broker: int) -> bool:
        """Stop a broker with a controlled shutdown. Return False if it does not run."""
        ...

    async def start_broker(self, broker: int) -> None:
        """Start a broker if it does not run."""
        ...

    async def pause(self, process: Process, seconds: float) -> None:
        """Pause a process, as between SIGSTOP and SIGCONT."""
        ...

    def allow_disk_failure(self, broker: int) -> AbstractContextManager[bool]:
        """Allow the broker to lose its log directories, and to end, within the block. The value is False if the disk
        must not fail now."""
        ...

    async def restart_all(self, *, orderly: bool) -> None:
        """Stop or kill all brokers and start them again."""
        ...

    async def stop_all(self) -> None:
        """Stop all brokers at the end of the run."""
        ...


LOG_DIRS = ("data", "more")
RESTART_BACKOFF_S = 1.0
"""The pause after a process could not start."""


def host_settings(broker: int, host: str, log_dirs: int) -> dict[str, str]:
    return {
        "broker.rack": f"rack-{broker}",
        "log.dirs": ",".join(f"/{host}/{name}" for name in LOG_DIRS[:log_dirs]),
        "listeners": f"PLAINTEXT://{host}:9092",
    }


async def pause_for(process: Process, seconds: float) -> None:
    """Run nothing of the process for so many seconds."""
    from simulation.virtual_loop import VirtualLoop

    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.pause_process(process)
    await asyncio.sleep(seconds)
    loop.resume_process(process)
