"""One step of the group coordinator, with the settings, clients and deadlines that every kind of group uses.

Leaves the rules to each kind of group, and the parts of a step that only classic groups have to `classic_step`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from odradek_broker.coordination.core.deadlines import DeadlineQueue
from odradek_broker.coordination.core.step import CoordinatorEvent, DeferredResponse, ResponseOnceWritten, Step
from odradek_broker.groups.core.group_records import CoordinatorRecord
from odradek_controller.image import ClusterImage
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message

NO_MEMBER = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """The broker's settings for groups and offsets; the names are Kafka's."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000

    def allow_session_timeout(self, timeout_ms: int) -> bool:
        return self.min_session_timeout_ms <= timeout_ms <= self.max_session_timeout_ms


class GroupClient(NamedTuple):
    """The client that sent a request. `random_id` is for the member id that the coordinator may have to generate."""

    client_id: str
    client_host: str
    api_version: int
    random_id: str = ""


class DeadlineKey(NamedTuple):
    """One deadline of a group, or of one of its members. Each kind of group has its own kinds of deadlines."""

    kind: Enum
    group_id: str
    member_id: str = ""


Deadlines = DeadlineQueue[DeadlineKey]


class GroupWrite(Protocol):
    """A description of the records of a step, kept until they are written. Each kind of group has its own classes."""

    @property
    def group_id(self) -> str: ...


class LoggedMember(Protocol):
    """The facts about a member of any kind of group that the broker logs."""

    member_id: str
    client_id: str
    client_host: str


@dataclass(slots=True)
class GroupStep(Step[CoordinatorRecord, GroupWrite]):
    """A step of the group coordinator. `GroupShard.written` handles the outcome of `write`."""

    settings: GroupSettings = field(kw_only=True)
    deadlines: Deadlines = field(kw_only=True)
    image: ClusterImage = field(kw_only=True)
    """The cluster's metadata, from which assignors on the broker take topics and partitions (KIP-848)."""

    def log_event(
        self,
        event: str,
        group_id: str,
        epoch: int,
        member: LoggedMember | None = None,
        *,
        notable: bool = False,
    ) -> None:
        """Add an event to the broker's log. `epoch` is the generation in a classic group."""
        facts: dict[str, object] = {"group": group_id, "generation": epoch}
        if member is not None:
            facts |= {"member": member.member_id, "client_id": member.client_id, "address": member.client_host[1:]}
        self.events.append(CoordinatorEvent(event, facts, notable))

    def respond(self, deferred: DeferredResponse | None, response: Message) -> None:
        """Complete a deferred response; do nothing if it is None."""
        if deferred is not None:
            self.responses.append((deferred, response))

    def respond_once_written(
        self, deferred: DeferredResponse, response: Message, error_response: Callable[[ErrorCode], Message]
    ) -> None:
        """Complete a request when the records of this step are committed, or with `error_response` if the write
        fails."""
        self.responses_once_written.append(ResponseOnceWritten(deferred, response, error_response))

    def set_deadline(self, kind: Enum, group_id: str, delay_ms: int, member_id: str = NO_MEMBER) -> None:
        self.deadlines.set(DeadlineKey(kind, group_id, member_id), self.now.monotonic_ms + delay_ms)

    def cancel_deadline(self, kind: Enum, group_id: str, member_id: str = NO_MEMBER) -> None:
        self.deadlines.cancel(DeadlineKey(kind, group_id, member_id))
