"""One partition of `__consumer_offsets`: all groups and offsets in it.

Owns the groups by id, the choice of the kind of group that handles an input, and the replay of records. Leaves the
rules of each kind of group to `group_kinds`, and those of offsets to `offset_requests` and `offset_expiration`. The
shell appends records and sends responses.

Offsets, deleted groups and foreign groups change only when their records are replayed, and offsets also when a
transaction ends. The members of a classic group change immediately, as in Kafka: the group's record is a snapshot,
which is read only while the coordinator loads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.coordination.core.step import DeferredResponse
from odradek_broker.groups.core import offset_requests
from odradek_broker.groups.core.classic_group import ClassicGroup
from odradek_broker.groups.core.group import Groups
from odradek_broker.groups.core.group_kind import Request, RequestHandler, Response
from odradek_broker.groups.core.group_kinds import GROUP_KINDS, GroupKinds
from odradek_broker.groups.core.group_listing import described_as_dead
from odradek_broker.groups.core.group_records import CoordinatorRecord, OffsetRecord
from odradek_broker.groups.core.group_step import Deadlines, GroupClient, GroupSettings, GroupStep, GroupWrite
from odradek_broker.groups.core.offset_expiration import expire
from odradek_broker.groups.core.offset_requests import FetchedOffsets
from odradek_broker.groups.core.offset_store import OffsetStore
from odradek_controller.image import ClusterImage
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.delete_groups import DeleteGroupsResponse
from odradek_wire.messages.describe_groups import DescribeGroupsResponse
from odradek_wire.messages.list_groups import ListGroupsResponse
from odradek_wire.messages.offset_commit import OffsetCommitRequest
from odradek_wire.messages.offset_delete import OffsetDeleteRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

Records = list[CoordinatorRecord]

DEADLINE_DELAY_MS = 50
"""The delay of a deadline that passes while a write is pending, in kinds of groups whose deadlines wait for writes."""


class GroupShard:
    """A method that needs the time takes it as an argument. A method that sets deadlines or completes requests returns
    a `GroupStep`."""

    def __init__(self, settings: GroupSettings, image: ClusterImage, kinds: GroupKinds = GROUP_KINDS) -> None:
        self.kinds = kinds
        self.settings = settings
        self.image = image
        """The latest metadata; the shell replaces it."""
        self.groups: Groups = {}
        self.offsets = OffsetStore()
        self.deadlines = Deadlines()

    # -- members --------------------------------------------------------------------------------------------------

    def handle(
        self,
        handler: RequestHandler[Request, Response],
        request: Request,
        client: GroupClient,
        deferred: DeferredResponse,
        now: Instant,
    ) -> GroupStep:
        """Serve a request of a group's member. The kind of an existing group may have a handler in place of `handler`.
        The response is in this step, or in a later one."""
        step = self._step(now)
        self.handler_of(request, handler).handle(self.groups, step, request, client, deferred)
        return step

    def handler_of(
        self, request: Request, default: RequestHandler[Request, Response]
    ) -> RequestHandler[Request, Response]:
        """Return the handler that the kind of the group has for this request, or else the default."""
        group = self.groups.get(request.group_id)
        return default if group is None else self.kinds.of_group(group).handlers.get(type(request), default)

    def written(self, write: GroupWrite, error: ErrorCode, now: Instant) -> GroupStep:
        """Handle the outcome of the step that had this `write`: NONE when its records are committed, or an error."""
        step = self._step(now)
        group = self.groups.get(write.group_id)
        if group is not None:
            self.kinds.of_group(group).written(step, group, write, error)
        return step

    def handle_deadlines(
        self, now: Instant, has_pending_writes: Callable[[], bool] = lambda: False
    ) -> Iterable[GroupStep]:
        """Yield one step for each deadline that has passed. The caller applies a step before it takes the next one.
        While a write is pending, delay the deadlines that wait for it."""
        for key in self.deadlines.take_due(now.monotonic_ms):
            group = self.groups.get(key.group_id)
            if group is None:
                continue
            kind = self.kinds.of_group(group)
            if kind.deadlines_wait_for_writes and has_pending_writes():
                self.deadlines.set(key, now.monotonic_ms + DEADLINE_DELAY_MS)
                continue
            step = self._step(now)
            kind.deadline_passed(step, group, key.kind, key.member_id)
            yield step

    # -- offsets --------------------------------------------------------------------------------------------------

    def commit(
        self, request: OffsetCommitRequest, api_version: int, deferred: DeferredResponse, now: Instant
    ) -> GroupStep | ErrorCode:
        """Return a step whose response is sent when its records are written, or the error of the whole request."""
        group = self.groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            error = offset_requests.commit_error_without_group(generation, api_version)
        else:
            error = group.validate_offset_commit(
                request.member_id,
                request.group_instance_id,
                generation,
                transactional=False,
                api_version=api_version,
            )
        if error:
            return error
        step = self._step(now)
        if group is not None:
            group.offsets_committed(step, request.member_id)
        offset_requests.commit(step, request, deferred)
        return step

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, api_version: int, now: Instant
    ) -> tuple[Records, TxnOffsetCommitResponse] | ErrorCode:
        """Return the records, which the caller writes in the producer's transaction, and the response for when they are
        written; or the error of the whole request."""
        group = self.groups.get(request.group_id)
        generation = request.generation_id
        if group is None:
            error = ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
        else:
            error = group.validate_offset_commit(
                request.member_id,
                request.group_instance_id,
                generation,
                transactional=True,
                api_version=api_version,
            )
        if error:
            return error
        return offset_requests.commit_in_transaction(request, self.settings.offset_metadata_max_bytes, now.wall_ms)

    def fetch(
        self, request: OffsetFetchRequest.OffsetFetchRequestGroup, *, require_stable: bool = False
    ) -> FetchedOffsets:
        group = self.groups.get(request.group_id)
        if group is not None:
            error = group.validate_offset_fetch(request.member_id, request.member_epoch)
            if error:
                return FetchedOffsets.failed(request.group_id, error)
        return offset_requests.fetch(self.offsets, request, require_stable=require_stable)

    def delete_offsets(self, request: OffsetDeleteRequest, deferred: DeferredResponse, now: Instant) -> GroupStep:
        step = self._step(now)
        group = self.groups.get(request.group_id)
        error = ErrorCode.GROUP_ID_NOT_FOUND if group is None else group.validate_offset_delete()
        if group is None or error:
            step.respond(deferred, offset_requests.delete_error_response(error))
        else:
            offset_requests.delete(step, self.offsets, group, request, deferred)
        return step

    def delete_offsets_of_topics(self, topics: Iterable[str]) -> Records:
        """Return tombstones for all offsets of deleted topics."""
        return [OffsetRecord(*key, None) for topic in topics for key in self.offsets.of_topic(topic)]

    def expire_offsets(self, wall_ms: int) -> Records:
        """Return tombstones for offsets whose retention is over, and for empty groups without offsets."""
        retention_ms = self.settings.offsets_retention_ms
        return [
            record for group in self.groups.values() for record in expire(self.offsets, group, retention_ms, wall_ms)
        ]

    # -- administration -------------------------------------------------------------------------------------------

    def list(self) -> Iterator[ListGroupsResponse.ListedGroup]:
        """Return the groups of now, each with its state when the caller takes it."""
        return (group.as_listed_group() for group in list(self.groups.values()))

    def describe(self, group_id: str) -> DescribeGroupsResponse.DescribedGroup:
        group = self.groups.get(group_id)
        return described_as_dead(group_id, "not found") if group is None else group.as_described_group()

    def delete(self, group_id: str) -> tuple[Records, DeleteGroupsResponse.DeletableGroupResult]:
        group = self.groups.get(group_id)
        error = ErrorCode.NONE
        records: Records = []
        if group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif not group.is_empty:
            error = ErrorCode.NON_EMPTY_GROUP
        else:
            records = [*offset_requests.tombstones(self.offsets, group_id), *group.tombstones()]
        return records, DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=error)

    # -- records --------------------------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord) -> None:
        """Apply a record that this coordinator has written, when it is committed."""
        kind = self.kinds.of_record(record)
        if kind is not None:
            kind.replay(self.groups, record, self.deadlines)
        elif isinstance(record, OffsetRecord):
            self._replay_offset(record)

    def load(self, record: CoordinatorRecord) -> None:
        """Apply a record that is read from the log while the coordinator loads."""
        kind = self.kinds.of_record(record)
        if kind is not None:
            kind.load(self.groups, record)
        elif isinstance(record, OffsetRecord):
            self._replay_offset(record)

    def transaction_ended(self, producer_id: int, *, commit: bool) -> None:
        """Commit or drop the producer's pending offsets, when its transaction marker is committed."""
        self.offsets.end_transaction(producer_id, commit=commit)

    def loaded(self, now: Instant) -> GroupStep:
        """Start the sessions of members, when all records are loaded."""
        step = self._step(now)
        for group in self.groups.values():
            self.kinds.of_group(group).loaded(step, group)
        return step

    def unload(self, now: Instant) -> GroupStep:
        """Drop all groups and offsets, and fail pending requests with NOT_COORDINATOR."""
        step = self._step(now)
        for group in self.groups.values():
            self.kinds.of_group(group).unloaded(step, group)
        self.groups.clear()
        self.offsets = OffsetStore()
        self.deadlines.clear()
        return step

    def _replay_offset(self, record: OffsetRecord) -> None:
        group_id, value = record.group_id, record.value
        if value is not None and group_id not in self.groups:
            # A group that has offsets but no group metadata record (its client assigns partitions itself).
            self.groups[group_id] = ClassicGroup(group_id, value.commit_timestamp)
        self.offsets.replay(group_id, record.topic, record.partition, value, record.producer_id)

    def _step(self, now: Instant) -> GroupStep:
        return GroupStep(now, settings=self.settings, deadlines=self.deadlines, image=self.image)
