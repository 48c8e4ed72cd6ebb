"""The filters of ListGroups, and the description of a group that does not exist."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_groups import DescribeGroupsResponse
from odradek_wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """The filters of a ListGroups request (KIP-518, KIP-848). An empty filter matches every group, an unknown name
    matches none, and case is ignored."""

    states: frozenset[str]
    types: frozenset[str]

    @staticmethod
    def of(request: ListGroupsRequest) -> GroupFilter:
        return GroupFilter(_names(request.states_filter), _names(request.types_filter))

    def passes(self, group: ListGroupsResponse.ListedGroup) -> bool:
        return (not self.states or group.group_state.lower() in self.states) and (
            not self.types or group.group_type in self.types
        )


def _names(wanted: Iterable[str]) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in wanted)


def described_as_dead(group_id: str, reason: str) -> DescribeGroupsResponse.DescribedGroup:
    """Describe a group that does not exist, or is not classic. The API module removes the error before v6."""
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
        group_state=DEAD,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {reason}.",
    )
