"""The filters of ListGroups, and the description of a group that does not exist."""

from __future__ import annotations

from collections.abc import Iterable

from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_groups import DescribeGroupsResponse
from odradek_wire.messages.list_groups import ListGroupsResponse

DEAD = "Dead"


def filtered(
    groups: Iterable[ListGroupsResponse.ListedGroup], states: Iterable[str], types: Iterable[str]
) -> list[ListGroupsResponse.ListedGroup]:
    """Return the groups in one of these states and of one of these types (KIP-518, KIP-848). An empty filter matches
    every group, an unknown name matches none, and case is ignored."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {name.strip().lower() for name in types}
    return [
        group
        for group in groups
        if (not wanted_states or group.group_state.lower() in wanted_states)
        and (not wanted_types or group.group_type in wanted_types)
    ]


def described_as_dead(group_id: str, reason: str) -> DescribeGroupsResponse.DescribedGroup:
    """Describe a group that does not exist, or is not classic. The API module removes the error before v6."""
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
        group_state=DEAD,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {reason}.",
    )
