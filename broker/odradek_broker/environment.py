"""The environment of the brokers and the controller of a process: clock, disk, randomness, log, and the security of
listeners and brokers. Tests and the simulation pass their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from odradek_broker.clock import Clock
from odradek_broker.config import SYNC, BrokerConfig
from odradek_broker.descriptors import descriptor_limit
from odradek_broker.disk_executor import DiskExecutor
from odradek_broker.logger import Logger, ShortLines
from odradek_broker.security.authenticator import CHANNEL_BUILDERS, NewChannelBuilder
from odradek_broker.security.authorizer import Authorizer, allow_all_authorizer
from odradek_broker.security.quotas import Quotas, unlimited_quotas
from odradek_log.directory import LogDirectory
from odradek_log.disk import Disk, RealDisk

OPEN_FILES = 512
"""The limit of log files that a log directory keeps open, or half of the process's file descriptors if that is less."""


@dataclass(frozen=True, slots=True)
class BrokerEnvironment:
    """`randbytes(n)` returns n random bytes. Each broker gets an authorizer and quotas of its own, and each listener a
    channel builder, by its security protocol."""

    log: Logger
    clock: Clock
    disk: Disk
    randbytes: Callable[[int], bytes]
    authorizer: Callable[[BrokerConfig], Authorizer] = allow_all_authorizer
    quotas: Callable[[BrokerConfig], Quotas] = unlimited_quotas
    channel_builders: Mapping[str, NewChannelBuilder] = field(default_factory=lambda: CHANNEL_BUILDERS)

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
        """Return an environment without security, with the real clock, disk, randomness and log unless others are
        given."""
        synchronous = BrokerConfig(static).our_setting(SYNC) != "false"
        return cls(ShortLines(log or _standard_log()), clock or Clock(), disk or RealDisk(sync=synchronous), randbytes)

    def open_directory(self, path: os.PathLike[str], config: BrokerConfig, executor: DiskExecutor) -> LogDirectory:
        """Open and lock a log directory. Raises LogDirectoryError if another process or program uses it."""
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
