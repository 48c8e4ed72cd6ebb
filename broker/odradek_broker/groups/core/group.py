"""A group of any kind, as the coordinator of one partition of `__consumer_offsets` sees it.

Owns the common part of every kind of group: its descriptions for clients, the checks of requests on its offsets, and
its tombstones. Leaves the behaviour of each kind to a `GroupKind` of its own, listed in `group_kinds`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from odradek_broker.groups.core.committed_offset import CommittedOffset
from odradek_broker.groups.core.group_records import CoordinatorRecord
from odradek_broker.groups.core.group_step import GroupStep
from odradek_broker.groups.core.group_type import GroupType
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_groups import DescribeGroupsResponse
from odradek_wire.messages.list_groups import ListGroupsResponse

DescribedGroup = DescribeGroupsResponse.DescribedGroup
ListedGroup = ListGroupsResponse.ListedGroup

OffsetExpirationCondition = Callable[[CommittedOffset], int]
"""The wall-clock time from which on the retention of a committed offset counts (Kafka's OffsetExpirationCondition)."""


class Group(Protocol):
    """The methods have the names of Kafka's `Group`."""

    @property
    def group_id(self) -> str: ...

    @property
    def type(self) -> GroupType: ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    def as_listed_group(self) -> ListedGroup: ...

    def as_described_group(self) -> DescribedGroup:
        """The group in DescribeGroups, which knows classic groups only."""

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> ErrorCode:
        """Check an OffsetCommit or a TxnOffsetCommit. `generation` is a member epoch in newer kinds of groups; it is
        negative in a commit that comes from no member."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Check an OffsetFetch; only consumers of newer kinds of groups name a member (KIP-848)."""

    def validate_offset_delete(self) -> ErrorCode: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of this topic are in use, so that they cannot be deleted and do not expire."""

    def offsets_committed(self, step: GroupStep, member_id: str) -> None:
        """A member has committed offsets, which may extend its session."""

    @property
    def should_expire(self) -> bool:
        """Whether the group is deleted once it is empty and has no offsets."""

    def offset_expiration_condition(self) -> OffsetExpirationCondition | None:
        """None: no offset of the group expires now."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """The records that delete the group, without its offsets."""


Groups = dict[str, Group]
"""Group id → group, in one partition."""
