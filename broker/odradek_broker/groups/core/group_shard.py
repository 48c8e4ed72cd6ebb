"""One partition of `__consumer_offsets`: all groups and offsets that it holds.

Owns the registry of groups by id, each with a type, the way from a request to the rules of its group, what time brings
about, and the replay of records. The rules are in `classic_join`, `classic_rebalance`, `classic_session`, `offset_requests`,
`transactional_offset_commit` and `offset_expiration`; appending, waiting and answering are the shell's.

Offsets, deletions and foreign groups change in `replay` alone, and offsets when a transaction has ended. The membership
of a classic group changes at once, as in Kafka: its record is a picture of the whole group, taken when there is
something worth keeping, and read only at loading.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.coordination.core.step import Token
from odradek_broker.groups.core import (
    classic_join,
    classic_rebalance,
    classic_session,
    offset_requests,
    transactional_offset_commit,
)
from odradek_broker.groups.core.classic_group import ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.foreign_group import ForeignGroup
from odradek_broker.groups.core.group_listing import described, described_missing, listed
from odradek_broker.groups.core.group_records import (
    CoordinatorRecord,
    ForeignRecord,
    GroupMetadataRecord,
    OffsetRecord,
    group_from_record,
    new_group_record,
)
from odradek_broker.groups.core.group_step import (
    NO_MEMBER,
    AssignmentWrite,
    DeadlineKind,
    Deadlines,
    GroupClient,
    GroupSettings,
    GroupStep,
    ReplacementWrite,
    Write,
    join_error,
)
from odradek_broker.groups.core.offset_expiration import expire
from odradek_broker.groups.core.offset_store import OffsetStore
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_groups import DeleteGroupsResponse
from odradek_wire.messages.describe_groups import DescribeGroupsResponse
from odradek_wire.messages.heartbeat import HeartbeatRequest
from odradek_wire.messages.join_group import JoinGroupRequest
from odradek_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek_wire.messages.list_groups import ListGroupsResponse
from odradek_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from odradek_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from odradek_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

Group = ClassicGroup | ForeignGroup
Records = list[CoordinatorRecord]


class GroupShard:
    """Every method takes the present moment; methods that lead to anything but their result return a `GroupStep`."""

    def __init__(self, settings: GroupSettings) -> None:
        self.settings = settings
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self.deadlines = Deadlines()

    # -- membership -----------------------------------------------------------------------------------------------

    def join(self, request: JoinGroupRequest, caller: GroupClient, token: Token, now: Instant) -> GroupStep:
        """The answer is in some step: in this one, or when the join phase ends."""
        step = self._step(now)
        group = self.groups.get(request.group_id)
        if isinstance(group, ForeignGroup) and not group.is_empty:
            step.respond(token, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
            return step
        if group is None and request.member_id != NO_MEMBER:
            step.respond(token, join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            return step
        if isinstance(group, ClassicGroup):
            classic_join.join(step, group, request, caller, token)
            return step
        # An empty group of another type makes room for a classic one (KIP-848: the protocol may be changed back).
        step.records.extend(group.tombstones() if group else [])
        group = self.groups[request.group_id] = ClassicGroup(request.group_id, now.wall_ms)
        classic_join.join(step, group, request, caller, token)
        step.records.append(new_group_record(group))
        return step

    def sync(self, request: SyncGroupRequest, token: Token, now: Instant) -> GroupStep:
        """The answer is in some step: in this one, or once the leader's assignment is written."""
        step = self._step(now)
        group = self._classic(request.group_id)
        if group is None:
            step.respond(token, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        else:
            classic_session.sync(step, group, request, token)
        return step

    def heartbeat(self, request: HeartbeatRequest, now: Instant) -> ErrorCode:
        group = self._classic(request.group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return classic_session.heartbeat(self._step(now), group, request)

    def leave(self, request: LeaveGroupRequest, now: Instant) -> tuple[GroupStep, LeaveGroupResponse]:
        step = self._step(now)
        group = self._classic(request.group_id)
        if group is not None:
            return step, classic_session.leave(step, group, request)
        return step, LeaveGroupResponse(
            members=[
                LeaveGroupResponse.MemberResponse(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                )
                for member in request.members
            ]
        )

    def written(self, write: Write, error: ErrorCode, now: Instant) -> GroupStep:
        """The records of the step that carried `write` are in the log, or (with an error) are not."""
        step = self._step(now)
        group = self._classic(write.group_id)
        if group is not None:
            match write:
                case AssignmentWrite():
                    classic_rebalance.assignment_written(step, group, write, error)
                case ReplacementWrite():
                    classic_join.replacement_written(step, group, write, error)
        return step

    def expired(self, now: Instant) -> Iterable[GroupStep]:
        """One step for each deadline that has passed, in order. To be used up: each is worked out when it is taken."""
        for key in self.deadlines.take_due(now.timeout_ms):
            group = self._classic(key.group_id)
            if group is None:
                continue
            step = self._step(now)
            match key.kind:
                case DeadlineKind.SESSION:
                    classic_rebalance.session_expired(step, group, key.member_id)
                case DeadlineKind.JOIN:
                    classic_rebalance.join_phase_expired(step, group)
                case DeadlineKind.SYNC:
                    classic_rebalance.sync_phase_expired(step, group)
            yield step

    # -- offsets --------------------------------------------------------------------------------------------------

    def commit(
        self, request: OffsetCommitRequest, api_version: int, now: Instant
    ) -> tuple[Records, OffsetCommitResponse] | ErrorCode:
        """The records and the answer once they are written; or the error of the whole request."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ForeignGroup):
            error = group.commit_error(request.generation_id_or_member_epoch)
        else:
            error = offset_requests.commit_error(group, request, api_version)
        if error:
            return error
        if isinstance(group, ClassicGroup) and group.is_in(
            ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE
        ):
            member = group.members.get(request.member_id)
            if member is not None:
                self._step(now).extend_session(group, member)
        return offset_requests.commit(request, self.settings.offset_metadata_max_bytes, now.wall_ms)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, now: Instant
    ) -> tuple[Records, TxnOffsetCommitResponse] | ErrorCode:
        """The same for offsets that count once the producer's transaction is committed."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ForeignGroup):
            error = group.commit_error(request.generation_id)
        else:
            error = transactional_offset_commit.commit_error(group, request)
        if error:
            return error
        return transactional_offset_commit.commit(request, self.settings.offset_metadata_max_bytes, now.wall_ms)

    def fetch(
        self, request: OffsetFetchRequest.OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> OffsetFetchResponse.OffsetFetchResponseGroup:
        return offset_requests.fetch(self.offsets, request, require_stable=require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest) -> tuple[Records, OffsetDeleteResponse]:
        group = self.groups.get(request.group_id)
        if isinstance(group, ForeignGroup):
            # Which topics its members subscribe to is not known here.
            return [], OffsetDeleteResponse(error_code=ErrorCode.NON_EMPTY_GROUP)
        error = offset_requests.delete_error(group)
        if error or group is None:
            return [], OffsetDeleteResponse(error_code=error)
        return offset_requests.delete(self.offsets, group, request)

    def forget_topics(self, topics: Iterable[str]) -> Records:
        """These topics were deleted: so are all offsets in them."""
        return [OffsetRecord(*where, None) for topic in topics for where in self.offsets.of_topic(topic)]

    def expire_offsets(self, wall_ms: int) -> Records:
        """What has had its day: offsets, and empty groups without any."""
        retention_ms = self.settings.offsets_retention_ms
        return [
            record
            for group in self.groups.values()
            if isinstance(group, ClassicGroup)
            for record in expire(self.offsets, group, retention_ms, wall_ms)
        ]

    # -- administration -------------------------------------------------------------------------------------------

    def list(self) -> list[ListGroupsResponse.ListedGroup]:
        return [listed(group_id, group) for group_id, group in self.groups.items()]

    def describe(self, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
        group = self.groups.get(group_id)
        return described(group) if isinstance(group, ClassicGroup) else described_missing(group_id, group)

    def delete(self, group_id: str) -> tuple[Records, DeleteGroupsResponse.DeletableGroupResult]:
        group = self.groups.get(group_id)
        error = ErrorCode.NONE
        records: Records = []
        if group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif not group.is_empty:
            error = ErrorCode.NON_EMPTY_GROUP
        else:
            records = offset_requests.tombstones(self.offsets, group_id)
            records += group.tombstones() if isinstance(group, ForeignGroup) else [GroupMetadataRecord(group_id, None)]
        return records, DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)

    # -- records --------------------------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord) -> None:
        """A record is in the log for good. Of a classic group only its end matters while we lead; see `load`."""
        match record:
            case OffsetRecord(group_id, topic, partition, value, producer_id):
                if value is not None and group_id not in self.groups:
                    # A simple group: it consists of its offsets.
                    self.groups[group_id] = ClassicGroup(group_id, value.commit_timestamp)
                self.offsets.replay(group_id, topic, partition, value, producer_id)
            case GroupMetadataRecord(group_id, value):
                group = self.groups.get(group_id)
                if value is None and isinstance(group, ClassicGroup) and group.is_empty:
                    self._remove(group)
            case ForeignRecord():
                self._replay_foreign(record)

    def transaction_ended(self, producer_id: int, *, commit: bool) -> None:
        """A marker is in the log for good: the offsets of the producer's transaction count now, or never."""
        self.offsets.end_transaction(producer_id, commit=commit)

    def load(self, record: CoordinatorRecord) -> None:
        """The same at loading, where groups are what their records say."""
        if isinstance(record, GroupMetadataRecord):
            if record.value is None:
                self.groups.pop(record.group_id, None)
            else:
                self.groups[record.group_id] = group_from_record(record.group_id, record.value)
        else:
            self.replay(record)

    def loaded(self, now: Instant) -> GroupStep:
        """All records are replayed: from now on members must show signs of life."""
        step = self._step(now)
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    step.extend_session(group, member)
                if len(group.members) > self.settings.max_size:
                    classic_rebalance.prepare_rebalance(step, group)
        return step

    def unload(self, now: Instant) -> GroupStep:
        """Somebody else coordinates these groups now: whoever waits is sent there."""
        step = self._step(now)
        for group in self.groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    step.respond_to_join(group, member, join_error(ErrorCode.NOT_COORDINATOR, member.member_id))
                    step.respond_to_sync(member, SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR))
        self.groups.clear()
        self.offsets = OffsetStore()
        self.deadlines.clear()
        return step

    def _replay_foreign(self, record: ForeignRecord) -> None:
        if record.kind is None:
            return
        group = self.groups.get(record.group_id)
        if not isinstance(group, ForeignGroup):
            if record.value is None or (group is not None and not group.is_empty):
                return
            group = self.groups[record.group_id] = ForeignGroup(record.group_id, record.kind)
        group.replay(record)
        if not group.keys:
            del self.groups[record.group_id]

    def _remove(self, group: ClassicGroup) -> None:
        del self.groups[group.group_id]
        for member_id in sorted(group.pending_members):
            self._step(Instant(0, 0)).expect_no_more(DeadlineKind.SESSION, group, member_id)

    def _classic(self, group_id: str) -> ClassicGroup | None:
        group = self.groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    def _step(self, now: Instant) -> GroupStep:
        return GroupStep(now, settings=self.settings, deadlines=self.deadlines)
