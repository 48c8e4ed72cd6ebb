"""JoinGroup in classic groups: the checks, in Kafka's order, and the rebalance that follows.

Owns the four ways to join: a new dynamic member (which from v4 on first gets its id and joins again), a new static
member, a static member that returns, and a member that rejoins. Leaves the phases of a rebalance to
`classic_rebalance`.
"""

from __future__ import annotations

from odradek_broker.coordination.core.step import DeferredResponse
from odradek_broker.groups.core.classic_group import ClassicDeadline, ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.classic_member import ClassicGroupMember, Protocols
from odradek_broker.groups.core.classic_rebalance import (
    complete_join_if_all_joined,
    prepare_rebalance,
    rebalance_or_complete_join,
)
from odradek_broker.groups.core.classic_records import group_record
from odradek_broker.groups.core.classic_step import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    ReplacementWrite,
    cancel_deadline,
    join_error,
    join_response,
    respond_to_join,
    respond_to_sync,
    set_deadline,
)
from odradek_broker.groups.core.group_step import NO_MEMBER, GroupClient, GroupStep
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek_wire.messages.sync_group import SyncGroupResponse

MEMBER_ID_REQUIRED_FROM = 4
"""KIP-394: without this, a client that retries because it received no response adds another member each time."""
SKIP_ASSIGNMENT_FROM = 9
"""KIP-814: from this version on, a static leader that returns gets the members and SkipAssignment."""


def join(
    step: GroupStep, group: ClassicGroup, request: JoinGroupRequest, client: GroupClient, deferred: DeferredResponse
) -> None:
    """Complete `deferred` now, or when the join phase ends."""
    if not _accepts_joining_member(step, group, request.member_id):
        group.remove(request.member_id)
        cancel_deadline(step, ClassicDeadline.SESSION, group, request.member_id)
        step.respond(deferred, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not group.supports_protocols(request.protocol_type, [protocol.name for protocol in request.protocols]):
        step.respond(deferred, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif request.member_id != NO_MEMBER:
        _join_known(step, group, request, client, deferred)
    elif request.group_instance_id is not None:
        _join_static(step, group, request, client, deferred)
    else:
        _join_dynamic(step, group, request, client, deferred)


def replacement_written(step: GroupStep, group: ClassicGroup, write: ReplacementWrite, error: ErrorCode) -> None:
    """Respond to a static member whose new id is written; restore the old id if the write failed."""
    member = group.members.get(write.new_id)
    if member is None:
        return
    if not error:
        _respond_to_replacement(step, group, member, write)
        return
    respond_to_join(
        step,
        group,
        member,
        JoinGroupResponse(
            error_code=error,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader=write.leader_before or "",
        ),
    )
    group.update(
        member,
        write.protocols_before,
        write.rebalance_timeout_ms_before,
        write.session_timeout_ms_before,
        None,
    )
    cancel_deadline(step, ClassicDeadline.SESSION, group, write.new_id)
    group.extend_session(step, group.replace_static_member(write.instance_id, write.new_id, write.old_id))


def _accepts_joining_member(step: GroupStep, group: ClassicGroup, member_id: str) -> bool:
    """Apply group.max.size. During the join phase only members that have joined count: the last ones to join are
    refused."""
    member = group.members.get(member_id)
    if group.is_in(ClassicGroupState.PREPARING_REBALANCE):
        rejoined = member is not None and member.awaiting_join is not None
        return rejoined or group.num_members_awaiting_join < step.settings.max_size
    return group.is_empty or member is not None or len(group.members) < step.settings.max_size


def _join_dynamic(
    step: GroupStep, group: ClassicGroup, request: JoinGroupRequest, client: GroupClient, deferred: DeferredResponse
) -> None:
    member_id = f"{client.client_id}-{client.random_id}"
    if client.api_version >= MEMBER_ID_REQUIRED_FROM:
        group.pending_join_members.add(member_id)
        set_deadline(step, ClassicDeadline.SESSION, group, request.session_timeout_ms, member_id)
        step.respond(deferred, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(step, group, request, client, member_id, deferred)


def _join_static(
    step: GroupStep, group: ClassicGroup, request: JoinGroupRequest, client: GroupClient, deferred: DeferredResponse
) -> None:
    instance_id = request.group_instance_id
    assert instance_id is not None
    member_id = f"{instance_id}-{client.random_id}"
    if instance_id in group.static_members:
        _replace_static(step, group, request, client, instance_id, member_id, deferred)
    else:
        _add(step, group, request, client, member_id, deferred)


def _join_known(
    step: GroupStep, group: ClassicGroup, request: JoinGroupRequest, client: GroupClient, deferred: DeferredResponse
) -> None:
    member_id = request.member_id
    if member_id in group.pending_join_members and request.group_instance_id is None:
        _add(step, group, request, client, member_id, deferred)
        return
    error = group.validate_member(member_id, request.group_instance_id)
    if error:
        step.respond(deferred, join_error(error, member_id))
        return
    member = group.members[member_id]
    unchanged = member.protocols == _protocols(request)
    # A member with unchanged metadata has missed a response, and gets the current generation again. But the leader of a
    # stable group may rejoin because of a change that its metadata does not show, such as new partitions.
    missed_response = unchanged and (
        group.is_in(ClassicGroupState.COMPLETING_REBALANCE)
        or (group.is_in(ClassicGroupState.STABLE) and group.leader != member_id)
    )
    if missed_response:
        step.respond(deferred, join_response(group, member_id))
    else:
        _update(step, group, member, request, deferred)
        rebalance_or_complete_join(step, group)


def _add(
    step: GroupStep,
    group: ClassicGroup,
    request: JoinGroupRequest,
    client: GroupClient,
    member_id: str,
    deferred: DeferredResponse,
) -> None:
    member = ClassicGroupMember(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=client.client_id,
        client_host=client.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=_protocols(request),
        is_new=True,
    )
    if group.is_in(ClassicGroupState.PREPARING_REBALANCE) and group.previous_state is ClassicGroupState.EMPTY:
        group.new_member_added = True
    group.add(member, request.protocol_type, join=deferred)
    set_deadline(step, ClassicDeadline.SESSION, group, NEW_MEMBER_JOIN_TIMEOUT_MS, member_id)
    rebalance_or_complete_join(step, group)


def _replace_static(
    step: GroupStep,
    group: ClassicGroup,
    request: JoinGroupRequest,
    client: GroupClient,
    instance_id: str,
    member_id: str,
    deferred: DeferredResponse,
) -> None:
    """Give a static member that returns without its member id a new one. A stable group rebalances only if the selected
    protocol changes."""
    leader_before = group.leader
    old = group.members[group.static_members[instance_id]]
    # Pending requests with the old id come from a second client, or from a connection that the client has abandoned.
    fenced = ErrorCode.FENCED_INSTANCE_ID
    respond_to_join(step, group, old, join_error(fenced, old.member_id))
    respond_to_sync(step, old, SyncGroupResponse(error_code=fenced))
    cancel_deadline(step, ClassicDeadline.SESSION, group, old.member_id)
    member = group.replace_static_member(instance_id, old.member_id, member_id)
    write = ReplacementWrite(
        group_id=group.group_id,
        instance_id=instance_id,
        old_id=old.member_id,
        new_id=member_id,
        leader_before=leader_before,
        protocols_before=old.protocols,
        rebalance_timeout_ms_before=old.rebalance_timeout_ms,
        session_timeout_ms_before=old.session_timeout_ms,
        api_version=client.api_version,
    )
    _update(step, group, member, request, deferred)
    group.extend_session(step, member)
    if group.is_in(ClassicGroupState.COMPLETING_REBALANCE):
        # The leader may be computing an assignment with the old id.
        prepare_rebalance(step, group)
    elif group.is_in(ClassicGroupState.STABLE) and group.select_protocol() == group.protocol_name:
        step.records.append(group_record(group, {m.member_id: m.assignment for m in group.members.values()}))
        step.write = write
    elif group.is_in(ClassicGroupState.STABLE):
        prepare_rebalance(step, group)
    else:
        complete_join_if_all_joined(step, group)


def _respond_to_replacement(
    step: GroupStep, group: ClassicGroup, member: ClassicGroupMember, write: ReplacementWrite
) -> None:
    if write.api_version >= SKIP_ASSIGNMENT_FROM:
        is_leader = group.leader == member.member_id
        respond_to_join(step, group, member, join_response(group, member.member_id, skip_assignment=is_leader))
        return
    # Before KIP-814 a member that is named as the leader computes an assignment, so the response names the previous
    # leader.
    response = join_response(group, member.member_id)
    response.leader = write.leader_before or ""
    response.members = []
    respond_to_join(step, group, member, response)


def _update(
    step: GroupStep,
    group: ClassicGroup,
    member: ClassicGroupMember,
    request: JoinGroupRequest,
    deferred: DeferredResponse,
) -> None:
    # The client has abandoned a JoinGroup that is still pending. Kafka never completes it; the response here lets the
    # broker read the next request of its connection.
    respond_to_join(step, group, member, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    group.update(member, _protocols(request), _rebalance_timeout_ms(request), request.session_timeout_ms, deferred)


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    # JoinGroup v0 has no rebalance timeout: the session timeout is used for both.
    timeout_ms = request.rebalance_timeout_ms
    return request.session_timeout_ms if timeout_ms == -1 else timeout_ms
