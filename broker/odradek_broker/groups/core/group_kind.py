"""How one kind of group behaves: its requests, its records, and its reactions to time and to completed writes.

A new kind of group is a module with a `GroupKind`, and one line in `group_kinds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from odradek_broker.coordination.core.step import DeferredResponse
from odradek_broker.groups.core.group import Group, Groups
from odradek_broker.groups.core.group_records import CoordinatorRecord
from odradek_broker.groups.core.group_step import Deadlines, GroupClient, GroupSettings, GroupStep, GroupWrite
from odradek_broker.groups.core.group_type import GroupType
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message


class GroupRequest(Protocol):
    """A request about one group."""

    group_id: str


Request = TypeVar("Request", bound=GroupRequest)
Response = TypeVar("Response", bound=Message)
AnyGroup = TypeVar("AnyGroup", bound=Group)
Record = TypeVar("Record", bound=CoordinatorRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHandler(Generic[Request, Response]):
    """The functions that serve one API of a group's members, such as JoinGroup or Heartbeat."""

    request_class: type[Request]
    handle: Callable[[Groups, GroupStep, Request, GroupClient, DeferredResponse], None]
    """Put the response into this step, or into a later one."""
    error_response: Callable[[Request, ErrorCode], Response]
    """Make the response for an error that the coordinator finds before it looks up the group: INVALID_GROUP_ID,
    NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or an error from `validate`."""
    validate: Callable[[Request, GroupSettings], ErrorCode] | None = None
    """Check the request against the broker's settings, before the group's partition is looked up."""
    waits_for_writes: bool = False
    """Whether a request waits until earlier writes are committed. True for a kind of group that changes only by replay:
    otherwise the second of two requests would not see the effect of the first one, such as a new group epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKind(Generic[AnyGroup, Record]):
    """One kind of group."""

    group_type: GroupType
    key_types: frozenset[int]
    """The types of the keys of its records. A key begins with its type, as int16."""
    decode: Callable[[bytes, bytes | None], Record]
    """Raises `DecodeError`."""
    replay: Callable[[Groups, Record, Deadlines], None]
    """Apply a record that this coordinator has written, when it is committed."""
    load: Callable[[Groups, Record], None]
    """Apply a record that is read from the log while the coordinator loads."""
    handlers: Mapping[type[Any], RequestHandler[Any, Any]] = field(default_factory=dict)
    """Request class → the handler for groups of this kind. Other requests go to the handler that the API module passes
    to the coordinator."""
    loaded: Callable[[GroupStep, AnyGroup], None] = lambda step, group: None
    """Start the sessions of the members, when the coordinator has loaded."""
    unloaded: Callable[[GroupStep, AnyGroup], None] = lambda step, group: None
    """Complete every pending request with NOT_COORDINATOR: another broker coordinates the group now."""
    deadline_passed: Callable[[GroupStep, AnyGroup, Enum, str], None] = lambda step, group, kind, member_id: None
    """Handle a deadline that has passed: of the member with this id, or of the group if the id is empty."""
    deadlines_wait_for_writes: bool = False
    """Whether deadlines wait for earlier writes, as requests with `waits_for_writes` do."""
    written: Callable[[GroupStep, AnyGroup, GroupWrite, ErrorCode], None] = lambda step, group, write, error: None
    """Handle the outcome of the step that had this `write`: NONE when its records are committed, or an error."""
