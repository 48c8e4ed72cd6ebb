"""How one kind of group behaves: its requests, its records, and its reactions to time and to completed writes.

A new kind of group is a module with a `GroupKind`, and one line in `group_kinds`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from odradek_broker.coordination.core.step import Token
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
    """How the coordinator serves one API about the members of a group, such as JoinGroup or a heartbeat."""

    request_class: type[Request]
    handle: Callable[[Groups, GroupStep, Request, GroupClient, Token], None]
    """Complete the token with a response: in this step, or in a later one."""
    failed: Callable[[Request, ErrorCode], Response]
    """The response for an error that the coordinator finds before it looks at the group: INVALID_GROUP_ID,
    NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, or an error of `validate`."""
    validate: Callable[[Request, GroupSettings], ErrorCode] | None = None
    """Check the request against the broker's settings, before the coordinator is looked up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupKind(Generic[AnyGroup, Record]):
    """One kind of group."""

    group_type: GroupType
    key_types: frozenset[int]
    """The types of the keys of its records (the int16 that a key begins with)."""
    decode: Callable[[bytes, bytes | None], Record]
    """Raises `DecodeError`."""
    replay: Callable[[Groups, Record, Deadlines], None]
    """A record that this coordinator has written is committed."""
    load: Callable[[Groups, Record], None]
    """A record was read from the log while the coordinator loads."""
    handlers: Mapping[type[Any], RequestHandler[Any, Any]] = field(default_factory=dict)
    """Request class → its handler, for groups of this kind. A request that is not here goes to the handler that the
    API names: that of the kind of group which the API is made for."""
    loaded: Callable[[GroupStep, AnyGroup], None] = lambda step, group: None
    """The coordinator has loaded the group: its members' sessions begin."""
    unloaded: Callable[[GroupStep, AnyGroup], None] = lambda step, group: None
    """Another broker coordinates the group now: complete every pending request with NOT_COORDINATOR."""
    deadline_passed: Callable[[GroupStep, AnyGroup, Enum, str], None] = lambda step, group, kind, member_id: None
    """A deadline of this kind, of this member if it has one, has passed."""
    written: Callable[[GroupStep, AnyGroup, GroupWrite, ErrorCode], None] = lambda step, group, write, error: None
    """The records of the step that had `write` are committed, or are not."""
