"""What a process gives to its brokers and its controller: clock, disk, randomness, log. Tests bring their own."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from odradek_broker.clock import Clock
from odradek_broker.config import SYNC, BrokerConfig
from odradek_broker.descriptors import descriptor_limit
from odradek_broker.disk_executor import DiskExecutor
from odradek_broker.logger import Logger, ShortLines
from odradek_log.directory import LogDirectory
from odradek_log.disk import Disk, RealDisk

OPEN_FILES = 512
"""Log files that a log directory keeps open, if half of the process's file descriptors are as many."""


@dataclass(frozen=True, slots=True)
class BrokerEnvironment:
    """`randbytes(n)` gives n bytes of chance."""

    log: Logger
    clock: Clock
    disk: Disk
    randbytes: Callable[[int], bytes]

    @classmethod
    def of(
        cls,
        static: Mapping[str, str],
        *,
        log: Logger | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
        randbytes: Callable[[int], bytes] = os.urandom,
    ) -> BrokerEnvironment:
        """The real ones, but for what is given."""
        synchronous = BrokerConfig(static).setting(SYNC) != "false"
        return cls(ShortLines(log or _standard_log()), clock or Clock(), disk or RealDisk(sync=synchronous), randbytes)

    def open_directory(self, path: os.PathLike[str], config: BrokerConfig, executor: DiskExecutor) -> LogDirectory:
        """Raises LogDirectoryError when it is in use or not ours."""
        return LogDirectory.open(
            os.fspath(path),
            wall_ms=self.clock.wall_ms,
            later=executor.later,
            disk=self.disk,
            reporter=self.log,
            producer_expiration_ms=config.integer("producer.id.expiration.ms"),
            random_below=lambda bound: int.from_bytes(self.randbytes(8), "big") % bound,
            open_files=min(OPEN_FILES, (descriptor_limit() or 2 * OPEN_FILES) // 2),
        )


def _standard_log() -> Logger:
    import structlog

    return structlog.get_logger("odradek")  # type: ignore[no-any-return]
