"""A cluster of three brokers with one partition of groups, and a member that follows its coordinator."""

from __future__ import annotations

from typing import Any

from broker.tests.three_brokers import Trio

from odradek_broker.replication.partition import Partition
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest
from odradek_wire.messages.heartbeat import HeartbeatRequest
from odradek_wire.messages.join_group import JoinGroupRequest
from odradek_wire.messages.offset_commit import OffsetCommitRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.messages.sync_group import SyncGroupRequest

GROUP = "g"


RETRIED = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Groups(Trio):
    """Three brokers; `__consumer_offsets` has one partition, with a replica on each."""

    def static(self, broker: int) -> dict[str, str]:
        offsets = {"offsets.topic.replication.factor": "3", "offsets.topic.num.partitions": "1"}
        return {**super().static(broker), **offsets}

    async def coordinator(self) -> int:
        client = await self.client(min(self.cluster.nodes))
        return int((await client.ask(FindCoordinatorRequest(GROUP, 0), 3)).node_id)

    def offsets_at(self, broker: int) -> Partition:
        found = self.cluster.nodes[broker].broker.partitions.get("__consumer_offsets", 0)
        assert found is not None
        return found


class Member:
    """The only member of the group; it looks up its coordinator before every request."""

    def __init__(self, trio: Groups) -> None:
        self._trio = trio
        self.member_id = ""
        self.generation = -1

    async def join(self) -> None:
        client = await self._trio.client(await self._trio.coordinator())
        protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", b"metadata")
        request = JoinGroupRequest(GROUP, 60_000, 60_000, "", None, "consumer", [protocol])
        joined = await client.ask(request, 3)
        assert joined.error_code == 0, joined
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignment = SyncGroupRequest.SyncGroupRequestAssignment(self.member_id, b"all of it")
        synced = await client.ask(SyncGroupRequest(GROUP, self.generation, self.member_id, assignments=[assignment]), 1)
        assert synced.error_code == 0, synced

    async def commit(self, offset: int) -> ErrorCode:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, offset, committed_metadata="")
        topic = OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[partition])
        request = OffsetCommitRequest(GROUP, self.generation, self.member_id, topics=[topic])
        client = await self._trio.client(await self._trio.coordinator())
        return ErrorCode((await client.ask(request, 6)).topics[0].partitions[0].error_code)

    async def heartbeat(self) -> ErrorCode:
        client = await self._trio.client(await self._trio.coordinator())
        return ErrorCode((await client.ask(HeartbeatRequest(GROUP, self.generation, self.member_id), 2)).error_code)

    async def committed(self) -> tuple[ErrorCode, int]:
        client = await self._trio.client(await self._trio.coordinator())
        request = OffsetFetchRequest(GROUP, [OffsetFetchRequest.OffsetFetchRequestTopic("t", [0])])
        response = await client.ask(request, 5)
        if response.error_code:
            return ErrorCode(response.error_code), -1
        return ErrorCode.NONE, response.topics[0].partitions[0].committed_offset


async def retried(trio: Groups, ask: Any) -> Any:
    while True:
        response = await ask()
        if (response[0] if isinstance(response, tuple) else response) not in RETRIED:
            return response
        trio.clock.advance_timeouts(1)
