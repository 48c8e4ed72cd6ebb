"""The scenarios on a shard alone: no socket, no log, and a manual clock."""

from __future__ import annotations

from typing import Any

from broker.tests.groups import shards
from broker.tests.groups.shards import new_shard

from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.groups.core.group_step import GroupClient, GroupSettings, GroupStep
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek_wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from odradek_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_wire.messages.join_group import JoinGroupRequest
from odradek_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek_wire.messages.offset_delete import OffsetDeleteRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from odradek_wire.messages.sync_group import SyncGroupRequest


class Core:
    """A shard, and a log that commits every record immediately."""

    def __init__(self) -> None:
        self.shard = new_shard(GroupSettings(min_session_timeout_ms=1, max_size=3))
        self.now = Instant(1_700_000_000_000, 0)
        self.answers: dict[Any, Message] = {}
        self.ids = 0

    def pass_time(self, ms: int) -> None:
        self.now = Instant(self.now.wall_ms + ms, self.now.monotonic_ms + ms)
        self._handle_deadlines()

    def answer(self, client: str, due: bool) -> Message | None:
        return self.answers.pop(client, None)

    def ask(self, client: str, request: Message, version: int, due: bool) -> Message | None:
        response = self._handle(client, request, version)
        self._handle_deadlines()
        return response or self.answers.pop(client, None)

    def _handle(self, client: str, request: Message, version: int) -> Message | None:
        match request:
            case JoinGroupRequest():
                self.ids += 1
                group_client = GroupClient(client, "/127.0.0.1", version, f"{self.ids:032x}")
                if version < 1:
                    request.rebalance_timeout_ms = -1
                self._apply(shards.join(self.shard, request, group_client, client, self.now))
            case SyncGroupRequest():
                self._apply(shards.sync(self.shard, request, client, self.now))
            case HeartbeatRequest():
                return HeartbeatResponse(error_code=shards.heartbeat(self.shard, request, self.now))
            case LeaveGroupRequest():
                if version < 3:
                    request.members = [LeaveGroupRequest.MemberIdentity(request.member_id)]
                step, response = shards.leave(self.shard, request, self.now)
                self._apply(step)
                return LeaveGroupResponse(error_code=response.members[0].error_code) if version < 3 else response
            case OffsetCommitRequest():
                return self._commit(request, version)
            case OffsetFetchRequest():
                groups = request.groups
                if version < 8:
                    topics = [
                        OffsetFetchRequest.OffsetFetchRequestTopics(t.name, partition_indexes=t.partition_indexes)
                        for t in request.topics
                    ]
                    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(request.group_id, topics=topics)]
                return OffsetFetchResponse(groups=[self.shard.fetch(group).complete() for group in groups])
            case OffsetDeleteRequest():
                records, deleted = shards.delete_offsets(self.shard, request, self.now)
                self._replay(records)
                return deleted
            case DescribeGroupsRequest():
                return DescribeGroupsResponse(groups=[self.shard.describe(name) for name in request.groups])
            case DeleteGroupsRequest():
                records, result = self.shard.delete(request.groups_names[0])
                self._replay(records)
                return DeleteGroupsResponse(results=[result])
        return None

    def _commit(self, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
        result = shards.commit(self.shard, request, version, self.now)
        if not isinstance(result, ErrorCode):
            self._replay(result[0])
            return result[1]
        response = OffsetCommitResponse()
        for topic in request.topics:
            answers = [
                OffsetCommitResponse.OffsetCommitResponsePartition(partition.partition_index, result)
                for partition in topic.partitions
            ]
            response.topics.append(OffsetCommitResponse.OffsetCommitResponseTopic(topic.name, partitions=answers))
        return response

    def _apply(self, step: GroupStep) -> None:
        self.answers.update(step.responses)
        self._replay(step.records)
        if step.write is not None:
            self._apply(self.shard.written(step.write, ErrorCode.NONE, self.now))

    def _handle_deadlines(self) -> None:
        for step in self.shard.handle_deadlines(self.now):
            self._apply(step)

    def _replay(self, records: list[Any]) -> None:
        for record in records:
            self.shard.replay(record)


def test_the_shard_responds_as_written(scenario: str, play: Any) -> None:
    play(Core()).play(scenario)
