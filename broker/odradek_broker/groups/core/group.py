"""The interface that groups of every kind have (Kafka's `Group`).

Owns what the coordinator asks every group for: its entries in ListGroups and DescribeGroups, the checks of requests on
its offsets, and its tombstones. Leaves the behaviour of each kind to a `GroupKind` of its own, listed in `group_kinds`.
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
"""Returns the time at which the retention of an offset begins, on the wall clock (as in Kafka)."""


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
        """Return the group for DescribeGroups, which describes a group of any other kind than classic as dead."""

    def validate_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        transactional: bool,
        api_version: int,
    ) -> ErrorCode:
        """Check an OffsetCommit or a TxnOffsetCommit. `generation` is the member epoch in newer kinds of groups; it is
        negative when the client is not a member."""

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Check an OffsetFetch, which names a member only in newer kinds of groups (KIP-848)."""

    def validate_offset_delete(self) -> ErrorCode: ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether offsets of this topic are in use, so that they cannot be deleted and do not expire."""

    def offsets_committed(self, step: GroupStep, member_id: str) -> None:
        """Extend the session of a member that commits offsets, if this kind of group does so."""

    @property
    def should_expire(self) -> bool:
        """Whether offsets of the group expire, and the group itself when it is empty and has none."""

    def offset_expiration_condition(self) -> OffsetExpirationCondition | None:
        """Return None if offsets do not expire in the present state of the group."""

    def tombstones(self) -> list[CoordinatorRecord]:
        """Return the records that delete the group, but not its offsets."""


Groups = dict[str, Group]
"""Group id → group, in one partition."""
