"""A classic group as its record in `__consumer_offsets` describes it.

Leaves the bytes of the record to `group_records`.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_broker.groups.core.classic_group import ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.classic_member import ClassicGroupMember
from odradek_broker.groups.core.group_records import GroupMetadataRecord
from odradek_wire.messages.group_metadata_value import GroupMetadataValue


def group_record(group: ClassicGroup, assignments: Mapping[str, bytes]) -> GroupMetadataRecord:
    """Return a snapshot of the group with these assignments (member id → assignment)."""
    return GroupMetadataRecord(
        group.group_id,
        GroupMetadataValue(
            protocol_type=group.protocol_type or "",
            generation=group.generation,
            protocol=group.protocol_name,
            leader=group.leader,
            current_state_timestamp=-1
            if group.current_state_timestamp_ms is None
            else group.current_state_timestamp_ms,
            members=[
                GroupMetadataValue.MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(group.protocol_name),
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in group.members.values()
            ],
        ),
    )


def new_group_record(group: ClassicGroup) -> GroupMetadataRecord:
    """Return the record of a new group, without the member whose JoinGroup is pending."""
    return GroupMetadataRecord(
        group.group_id,
        GroupMetadataValue(
            protocol_type="",
            generation=0,
            protocol=None,
            leader=None,
            current_state_timestamp=-1
            if group.current_state_timestamp_ms is None
            else group.current_state_timestamp_ms,
            members=[],
        ),
    )


def group_from_record(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    """Return the group of a record: stable if it has members, else empty."""
    since_ms = value.current_state_timestamp
    group = ClassicGroup(group_id, None if since_ms == -1 else since_ms)
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader = value.leader
    for member in value.members:
        timeout_ms = member.rebalance_timeout
        group.add(
            ClassicGroupMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                # Version 0 has no rebalance timeout: the session timeout is used for both.
                rebalance_timeout_ms=member.session_timeout if timeout_ms == -1 else timeout_ms,
                session_timeout_ms=member.session_timeout,
                protocols=((value.protocol or "", bytes(member.subscription)),),
                assignment=bytes(member.assignment),
            ),
            value.protocol_type,
        )
    if group.members:
        group.state = ClassicGroupState.STABLE
    group.compute_subscribed_topics()
    return group
