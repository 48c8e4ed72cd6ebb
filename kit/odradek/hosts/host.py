"""What a `Cluster` needs of the place where its broker runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

LogEntry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """One rule of `Faults`, as it travels to the broker."""

    action: Literal["delay", "error", "drop", "disconnect"]
    when: Literal["request", "response"]
    """Before the handler has run, or after it: an acknowledgement that is lost is a response."""
    api: str
    """Kafka's name of the API, such as Produce."""
    times: int | None = None
    """How many requests it meets before it is over; None: all."""
    client_id: str | None = None
    """Only requests of this client; None: of any."""
    delay_ms: int = 0
    error_code: int = 0
    broker: int | None = None
    """Only requests to this broker; None: to any."""


Settings = Mapping[str, str]
"""Of one broker, under Kafka's names."""


class Host(Protocol):
    """Runs the brokers of one cluster. Every method blocks until it is done and may be called from any thread."""

    @property
    def logs(self) -> list[LogEntry]: ...

    def start(self, settings: Sequence[Settings]) -> dict[int, str]:
        """Start all brokers on whatever lies in their `log.dirs`; by id, the addresses that clients take."""
        ...

    def stop(self) -> None:
        """End in order; nothing happens if it does not run."""
        ...

    def kill(self) -> None:
        """End at once, as a crash does; nothing happens if it does not run."""
        ...

    def start_broker(self, settings: Settings) -> dict[int, str]:
        """One more of them; its id and address."""
        ...

    def stop_broker(self, broker: int) -> None:
        """End one in order; others take over what they can. KeyError if it does not run."""
        ...

    def kill_broker(self, broker: int) -> None:
        """End one at once. KeyError if it does not run."""
        ...

    def reset(self, topics: Mapping[str, int]) -> None:
        """As new, without faults and at the real time, but with these topics (name to partitions)."""
        ...

    def advance(self, wall_ms: int, timeouts_ms: int) -> None: ...

    def delete_old_segments(self) -> None: ...

    def clean_logs(self) -> None: ...

    def add_fault(self, fault: Fault) -> None: ...

    def clear_faults(self) -> None: ...


class NotRunningError(RuntimeError):
    """The cluster, or one broker of it, was asked for something that only a running one can do."""

    def __init__(self, broker: int | None = None) -> None:
        super().__init__("the cluster is not running" if broker is None else f"broker {broker} is not running")
