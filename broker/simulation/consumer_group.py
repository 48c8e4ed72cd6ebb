"""The members of a classic consumer group: they join, fetch, commit and leave, and sometimes miss heartbeats."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import TypeVar

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from odradek_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from simulation.checks import Checks
from simulation.client import Client, UnreachableError
from simulation.readers import fetch

GROUP = "group"
SESSION_TIMEOUT_MS = 3_000
REBALANCE_TIMEOUT_MS = 5_000
JOIN_TIMEOUT_S = 12.0
HEARTBEAT_S = 0.7
COMMIT_S = 1.0
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 5, 3, 3, 3
COMMIT_VERSION, FETCH_VERSION = 7, 7
MEMBERS = 3
NOT_COMMITTED = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
R = TypeVar("R", bound=Message)


class RejoinError(Exception):
    """The member must join the group again."""


class ConsumerGroup:
    """`MEMBERS` members, each on a host of its own; sometimes one leaves or stops its heartbeats."""

    def __init__(
        self, client: Callable[[str], Client], checks: Checks, topic: str, partitions: int, chance: random.Random
    ) -> None:
        self._members = [Member(client(f"member-{at}"), checks, topic, partitions) for at in range(MEMBERS)]
        self._checks = checks
        self._topic_partitions = [(topic, partition) for partition in range(partitions)]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for member in self._members:
                group.create_task(member.run())

    def committed(self) -> list[int]:
        return [self._checks.last_committed(GROUP, topic_partition) for topic_partition in self._topic_partitions]


class Member:
    def __init__(self, client: Client, checks: Checks, topic: str, partitions: int) -> None:
        self._client = client
        self._checks = checks
        self._topic = topic
        self._partitions = partitions
        self._id = ""
        self._generation = -1
        self._positions: dict[int, int] = {}
        self._committed: dict[int, int] = {}

    async def run(self) -> None:
        while True:
            try:
                await self._join()
                await self._work()
            except (UnreachableError, RejoinError) as error:
                self._client.note(f"{self._id[:12]} generation {self._generation}: {type(error).__name__}: {error}")
                self._client.forget_coordinator(GROUP)
                await asyncio.sleep(self._client.chance.uniform(0.05, 0.5))

    async def _ask(self, request: Message, version: int, response_class: type[R], timeout_s: float = 5.0) -> R:
        connection = await self._client.coordinator(GROUP)
        return await connection.ask(request, version, response_class, timeout_s)

    # -- membership ---------------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        joined = await self._joined()
        self._generation = joined.generation_id
        assignments = []
        if joined.leader == self._id:
            members = sorted(member.member_id for member in joined.members)
            for at, member_id in enumerate(members):
                mine = [partition for partition in range(self._partitions) if partition % len(members) == at]
                assignments.append(SyncGroupRequest.SyncGroupRequestAssignment(member_id, json.dumps(mine).encode()))
        request = SyncGroupRequest(GROUP, self._generation, self._id, assignments=assignments)
        synced = await self._ask(request, SYNC_VERSION, SyncGroupResponse, JOIN_TIMEOUT_S)
        self._check_error(synced.error_code)
        mine = json.loads(bytes(synced.assignment) or b"[]")
        self._client.note(f"{self._id[:12]} owns {mine} in generation {self._generation}")
        self._checks.owns(GROUP, self._generation, self._id, [(self._topic, partition) for partition in mine])
        await self._fetch_committed(mine)

    async def _joined(self) -> JoinGroupResponse:
        while True:
            protocol = JoinGroupRequest.JoinGroupRequestProtocol("ours", b"")
            request = JoinGroupRequest(
                GROUP, SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS, self._id, None, "consumer", [protocol]
            )
            joined = await self._ask(request, JOIN_VERSION, JoinGroupResponse, JOIN_TIMEOUT_S)
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self._id = joined.member_id
                continue
            self._check_error(joined.error_code)
            self._id = joined.member_id
            return joined

    def _check_error(self, error: int) -> None:
        if not error:
            return
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self._id = ""
        raise RejoinError(ErrorCode(error).name)

    async def _fetch_committed(self, mine: list[int]) -> None:
        self._positions = {}
        self._committed = {}
        if not mine:
            return
        floors = {partition: self._checks.last_committed(GROUP, (self._topic, partition)) for partition in mine}
        request = OffsetFetchRequest(GROUP, [OffsetFetchRequest.OffsetFetchRequestTopic(self._topic, mine)])
        request.require_stable = True
        response = await self._ask(request, FETCH_VERSION, OffsetFetchResponse)
        self._check_error(response.error_code)
        for found in response.topics[0].partitions:
            self._check_error(found.error_code)
            partition, offset = found.partition_index, found.committed_offset
            self._checks.offset_fetch_returned(GROUP, (self._topic, partition), floors[partition], offset)
            self._client.update_leader_epoch(self._topic, partition, found.committed_leader_epoch)
            self._positions[partition] = self._committed[partition] = max(offset, 0)

    # -- work ---------------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        chance = self._client.chance
        reading = [asyncio.ensure_future(self._read(partition)) for partition in self._positions]
        try:
            due_s = 0.0
            while True:
                await asyncio.sleep(HEARTBEAT_S)
                what = chance.random()
                if what < 0.01:
                    await self._leave()
                if what > 0.99:
                    self._client.note(f"{self._id[:12]} is silent")
                    await asyncio.sleep(chance.uniform(1, 6))
                beat = await self._ask(
                    HeartbeatRequest(GROUP, self._generation, self._id), HEARTBEAT_VERSION, HeartbeatResponse
                )
                due_s += HEARTBEAT_S
                if due_s >= COMMIT_S:
                    due_s = 0.0
                    await self._commit()
                self._check_error(beat.error_code)
                for task in reading:
                    if task.done():
                        task.result()
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)

    async def _read(self, partition: int) -> None:
        while True:
            reached = await fetch(self._client, self._checks, self._topic, partition, self._positions[partition])
            if reached is None:
                await asyncio.sleep(self._client.chance.uniform(0.1, 0.4))
            else:
                self._positions[partition] = reached

    async def _leave(self) -> None:
        request = LeaveGroupRequest(GROUP, members=[LeaveGroupRequest.MemberIdentity(self._id)])
        self._client.note(f"{self._id[:12]} leaves")
        left = self._id
        self._id = ""
        await self._ask(request, LEAVE_VERSION, LeaveGroupResponse)
        raise RejoinError(f"{left[:12]} has left")

    async def _commit(self) -> None:
        positions = {at: offset for at, offset in self._positions.items() if offset > self._committed[at]}
        if not positions:
            return
        checks = self._checks
        partitions = []
        for partition, offset in positions.items():
            checks.committing(GROUP, (self._topic, partition), offset)
            epoch = self._client.leader_epoch(self._topic, partition)
            partitions.append(OffsetCommitRequest.OffsetCommitRequestPartition(partition, offset, epoch))
        request = OffsetCommitRequest(GROUP, self._generation, self._id)
        request.topics = [OffsetCommitRequest.OffsetCommitRequestTopic(self._topic, partitions=partitions)]
        generation, newest = self._generation, checks.generation_of(GROUP)
        response = await self._ask(request, COMMIT_VERSION, OffsetCommitResponse)
        error = ErrorCode.NONE
        for found in response.topics[0].partitions:
            partition, error = found.partition_index, ErrorCode(found.error_code)
            topic_partition = (self._topic, partition)
            if error is ErrorCode.NONE:
                checks.committed(GROUP, topic_partition, positions[partition], generation, newest)
                self._committed[partition] = positions[partition]
            elif error in NOT_COMMITTED:
                checks.refused(GROUP, topic_partition, positions[partition])
        self._check_error(error)
