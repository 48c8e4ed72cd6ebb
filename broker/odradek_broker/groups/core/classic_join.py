"""JoinGroup: who may join a classic group, and what joining sets off.

Owns the checks in Kafka's order and the four ways in: a new dynamic member (which from v4 on must first take its id
and come back), a new static member, a static member that comes back, and a known member that rejoins. Leaves phases
to `classic_rebalance`.
"""

from __future__ import annotations

from odradek_broker.coordination.core.step import Token
from odradek_broker.groups.core.classic_group import ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.classic_member import ClassicGroupMember, Protocols
from odradek_broker.groups.core.classic_rebalance import (
    complete_join_if_all_joined,
    prepare_rebalance,
    rebalance_or_complete_join,
)
from odradek_broker.groups.core.group_records import group_record
from odradek_broker.groups.core.group_step import (
    NEW_MEMBER_JOIN_TIMEOUT_MS,
    NO_MEMBER,
    DeadlineKind,
    GroupClient,
    GroupStep,
    ReplacementWrite,
    join_answer,
    join_error,
)
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek_wire.messages.sync_group import SyncGroupResponse

MEMBER_ID_REQUIRED_FROM = 4
"""KIP-394: a client that never sees the first answer would leave a member behind each time it retries."""
SKIP_ASSIGNMENT_FROM = 9
"""KIP-814: a static leader that came back may be told the members without having to assign."""


def join(step: GroupStep, group: ClassicGroup, request: JoinGroupRequest, caller: GroupClient, token: Token) -> None:
    """Every path answers `token`, now or when the join phase ends."""
    if not _has_room(step, group, request.member_id):
        group.remove(request.member_id)
        step.expect_no_more(DeadlineKind.SESSION, group, request.member_id)
        step.respond(token, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not group.supports(request.protocol_type, [protocol.name for protocol in request.protocols]):
        step.respond(token, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif request.member_id != NO_MEMBER:
        _join_known(step, group, request, caller, token)
    elif request.group_instance_id is not None:
        _join_static(step, group, request, caller, token)
    else:
        _join_dynamic(step, group, request, caller, token)


def replacement_written(step: GroupStep, group: ClassicGroup, write: ReplacementWrite, error: ErrorCode) -> None:
    """The static member's new id is in the log, or could not be written: then the old one stays."""
    member = group.members.get(write.new_id)
    if member is None:
        return
    if not error:
        _answer_replacement(step, group, member, write)
        return
    step.respond_to_join(
        group,
        member,
        JoinGroupResponse(
            error_code=error,
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
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
    step.expect_no_more(DeadlineKind.SESSION, group, write.new_id)
    step.extend_session(group, group.rename_static(write.instance_id, write.new_id, write.old_id))


def member_error(group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """Is this a member? A static one whose id was given to a successor is fenced."""
    if instance_id is not None:
        holder = group.static_members.get(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def _has_room(step: GroupStep, group: ClassicGroup, member_id: str) -> bool:
    """group.max.size. While members rejoin, those that are back count, so that the last ones are out."""
    member = group.members.get(member_id)
    if group.is_in(ClassicGroupState.PREPARING_REBALANCE):
        waits = member is not None and member.join is not None
        return waits or group.awaiting_join < step.settings.max_size
    return group.is_empty or member is not None or len(group.members) < step.settings.max_size


def _join_dynamic(
    step: GroupStep, group: ClassicGroup, request: JoinGroupRequest, caller: GroupClient, token: Token
) -> None:
    member_id = f"{caller.client_id}-{caller.random_id}"
    if caller.api_version >= MEMBER_ID_REQUIRED_FROM:
        group.pending_members.add(member_id)
        step.expect(DeadlineKind.SESSION, group, request.session_timeout_ms, member_id)
        step.respond(token, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))
    else:
        _add(step, group, request, caller, member_id, token)


def _join_static(
    step: GroupStep, group: ClassicGroup, request: JoinGroupRequest, caller: GroupClient, token: Token
) -> None:
    instance_id = request.group_instance_id
    assert instance_id is not None
    member_id = f"{instance_id}-{caller.random_id}"
    if instance_id in group.static_members:
        _replace_static(step, group, request, caller, instance_id, member_id, token)
    else:
        _add(step, group, request, caller, member_id, token)


def _join_known(
    step: GroupStep, group: ClassicGroup, request: JoinGroupRequest, caller: GroupClient, token: Token
) -> None:
    member_id = request.member_id
    if member_id in group.pending_members and request.group_instance_id is None:
        _add(step, group, request, caller, member_id, token)
        return
    error = member_error(group, member_id, request.group_instance_id)
    if error:
        step.respond(token, join_error(error, member_id))
        return
    member = group.members[member_id]
    unchanged = member.protocols == _protocols(request)
    # A stable group's leader may know of a change that its metadata does not show (new partitions, say); anybody else
    # whose metadata is the same may have missed an answer, and is told the present generation again.
    missed_an_answer = unchanged and (
        group.is_in(ClassicGroupState.COMPLETING_REBALANCE)
        or (group.is_in(ClassicGroupState.STABLE) and group.leader != member_id)
    )
    if missed_an_answer:
        step.respond(token, join_answer(group, member_id))
    else:
        _update(step, group, member, request, token)
        rebalance_or_complete_join(step, group)


def _add(
    step: GroupStep, group: ClassicGroup, request: JoinGroupRequest, caller: GroupClient, member_id: str, token: Token
) -> None:
    member = ClassicGroupMember(
        member_id=member_id,
        instance_id=request.group_instance_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        rebalance_timeout_ms=_rebalance_timeout_ms(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=_protocols(request),
        is_new=True,
    )
    if group.is_in(ClassicGroupState.PREPARING_REBALANCE) and group.previous_state is ClassicGroupState.EMPTY:
        group.newcomers = True
    group.add(member, request.protocol_type, join=token)
    step.expect(DeadlineKind.SESSION, group, NEW_MEMBER_JOIN_TIMEOUT_MS, member_id)
    rebalance_or_complete_join(step, group)


def _replace_static(
    step: GroupStep,
    group: ClassicGroup,
    request: JoinGroupRequest,
    caller: GroupClient,
    instance_id: str,
    member_id: str,
    token: Token,
) -> None:
    """A static member came back without knowing its id. Nobody else need notice, unless the protocol changes."""
    leader_before = group.leader
    old = group.members[group.static_members[instance_id]]
    # Whoever still waits under the old id is a double, or a connection that the client has given up.
    fenced = ErrorCode.FENCED_INSTANCE_ID
    step.respond_to_join(group, old, join_error(fenced, old.member_id))
    step.respond_to_sync(old, SyncGroupResponse(error_code=fenced))
    step.expect_no_more(DeadlineKind.SESSION, group, old.member_id)
    member = group.rename_static(instance_id, old.member_id, member_id)
    write = ReplacementWrite(
        group_id=group.group_id,
        instance_id=instance_id,
        old_id=old.member_id,
        new_id=member_id,
        leader_before=leader_before,
        protocols_before=old.protocols,
        rebalance_timeout_ms_before=old.rebalance_timeout_ms,
        session_timeout_ms_before=old.session_timeout_ms,
        api_version=caller.api_version,
    )
    _update(step, group, member, request, token)
    step.extend_session(group, member)
    if group.is_in(ClassicGroupState.COMPLETING_REBALANCE):
        # The leader may be assigning to the old id already.
        prepare_rebalance(step, group)
    elif group.is_in(ClassicGroupState.STABLE) and group.select_protocol() == group.protocol:
        step.records.append(group_record(group, {m.member_id: m.assignment for m in group.members.values()}))
        step.write = write
    elif group.is_in(ClassicGroupState.STABLE):
        prepare_rebalance(step, group)
    else:
        complete_join_if_all_joined(step, group)


def _answer_replacement(
    step: GroupStep, group: ClassicGroup, member: ClassicGroupMember, write: ReplacementWrite
) -> None:
    if write.api_version >= SKIP_ASSIGNMENT_FROM:
        leads = group.leader == member.member_id
        step.respond_to_join(group, member, join_answer(group, member.member_id, skip_assignment=leads))
        return
    # Before KIP-814 a leader that learnt that it leads would assign anew, so it is told of the leader that it replaced.
    answer = join_answer(group, member.member_id)
    answer.leader = write.leader_before or ""
    answer.members = []
    step.respond_to_join(group, member, answer)


def _update(
    step: GroupStep, group: ClassicGroup, member: ClassicGroupMember, request: JoinGroupRequest, token: Token
) -> None:
    # A join that already waits was given up by its client. Kafka never answers it; we let go of its connection.
    step.respond_to_join(group, member, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    group.update(member, _protocols(request), _rebalance_timeout_ms(request), request.session_timeout_ms, token)


def _protocols(request: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)


def _rebalance_timeout_ms(request: JoinGroupRequest) -> int:
    # JoinGroup v0 has none: the session timeout stands for both.
    timeout_ms = request.rebalance_timeout_ms
    return request.session_timeout_ms if timeout_ms == -1 else timeout_ms
