"""The interface between a `Cluster` and the thread or process that runs its brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from odradek_broker.logger import Logger

LogEntry = Mapping[str, Any]
"""One log event of a broker: its event, level, timestamp and facts."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault of `Faults`."""

    action: Literal["delay", "error", "drop", "disconnect"]
    when: Literal["request", "response"]
    """Whether the fault applies before or after the broker handles the request."""
    api: str
    """Kafka's name of the API, such as Produce."""
    times: int | None = None
    """The number of requests to apply the fault to; None: all."""
    client_id: str | None = None
    """The client whose requests match; None: every client."""
    delay_ms: int = 0
    error_code: int = 0
    broker: int | None = None
    """The broker that applies the fault; None: every broker."""


BrokerSettings = Mapping[str, str]
"""The settings of one broker, under Kafka's names."""


class Host(Protocol):
    """Runs the brokers of one cluster. Methods block until they are done, and any thread may call them.

    A call that needs a running cluster or broker raises NotRunningError without one. A host in another process raises
    TimeoutError when that process does not respond, and BrokerProcessError when it has exited.
    """

    @property
    def logs(self) -> list[LogEntry]: ...

    @property
    def logger(self) -> Logger:
        """The logger for events of the cluster itself, which `logs` has too."""
        ...

    def start(self, settings: Sequence[BrokerSettings]) -> dict[int, str]:
        """Start all brokers on the data in their `log.dirs`; return the address of each by its id.

        Raises AlreadyRunningError, DataDirectoryError, ValueError for settings that cannot be served, and OSError.
        """
        ...

    def stop(self) -> None:
        """Stop all brokers with a controlled shutdown; do nothing if the cluster is not running."""
        ...

    def kill(self) -> None:
        """Stop all brokers immediately, as a crash does; do nothing if the cluster is not running."""
        ...

    def start_broker(self, settings: BrokerSettings) -> dict[int, str]:
        """Start one more broker; return its id and address. Raises as `start` does."""
        ...

    def stop_broker(self, broker: int) -> None:
        """Stop one broker with a controlled shutdown, which moves leadership to other brokers."""
        ...

    def kill_broker(self, broker: int) -> None:
        """Stop one broker immediately."""
        ...

    def reset(self, topics: Mapping[str, int]) -> None:
        """Delete all state and faults, restore the wall clock, and create `topics` (name to number of partitions)."""
        ...

    def advance(self, wall_ms: int, timeouts_ms: int) -> None: ...

    def delete_old_segments(self) -> None: ...

    def clean_logs(self) -> None: ...

    def add_fault(self, fault: Fault) -> None: ...

    def clear_faults(self) -> None: ...
