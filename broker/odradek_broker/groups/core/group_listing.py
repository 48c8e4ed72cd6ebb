"""Groups as ListGroups and DescribeGroups show them.

Owns the shape of the answers, and the filters of ListGroups. Leaves authorization to the API modules.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.groups.core.classic_group import ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.foreign_group import ForeignGroup
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_groups import DescribeGroupsResponse
from odradek_wire.messages.list_groups import ListGroupsResponse

CLASSIC = "classic"


def listed(group_id: str, group: ClassicGroup | ForeignGroup) -> ListGroupsResponse.ListedGroup:
    if isinstance(group, ForeignGroup):
        state = ClassicGroupState.EMPTY if group.is_empty else ClassicGroupState.STABLE
        kind = group.kind.value
        return ListGroupsResponse.ListedGroup(
            group_id=group_id, protocol_type=kind, group_state=state.value, group_type=kind
        )
    return ListGroupsResponse.ListedGroup(
        group_id=group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC,
    )


def filtered(
    groups: Iterable[ListGroupsResponse.ListedGroup], states: Iterable[str], types: Iterable[str]
) -> list[ListGroupsResponse.ListedGroup]:
    """KIP-518, KIP-848: no names let everything pass; upper or lower case is the same, unknown names match nothing."""
    wanted_states = {state.strip().lower() for state in states}
    wanted_types = {name.strip().lower() for name in types}
    return [
        group
        for group in groups
        if (not wanted_states or group.group_state.lower() in wanted_states)
        and (not wanted_types or group.group_type in wanted_types)
    ]


def described(group: ClassicGroup) -> DescribeGroupsResponse.DescribedGroup:
    """Metadata belongs to a protocol, and only a stable group has settled on one."""
    stable = group.is_in(ClassicGroupState.STABLE)
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if stable else "",
        members=[
            DescribeGroupsResponse.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def described_missing(group_id: str, group: ForeignGroup | None) -> DescribeGroupsResponse.DescribedGroup:
    """A group that does not exist, or is of another type, is dead; the error is newer (KIP-1043, v6) and taken out for
    older versions."""
    reason = "not found" if group is None else "is not a classic group"
    return DescribeGroupsResponse.DescribedGroup(
        group_id=group_id,
        group_state=ClassicGroupState.DEAD.value,
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} {reason}.",
    )
