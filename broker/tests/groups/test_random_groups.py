"""Groups with random members, which join, leave, vanish and return, while writes fail: the invariants hold.

Every seed is one history. Members behave as clients do: they join, sync, send heartbeats, rejoin when the group
rebalances, and join as new members when they are unknown; some are static. The leader assigns the partitions to the
members in its JoinGroup response.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from broker.tests.groups import shards
from broker.tests.groups.shards import new_shard

from odradek_broker.coordination.core.deadlines import Instant
from odradek_broker.groups.core.classic_group import ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.group_records import CoordinatorRecord
from odradek_broker.groups.core.group_step import GroupClient, GroupSettings, GroupStep
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.heartbeat import HeartbeatRequest
from odradek_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek_wire.messages.leave_group import LeaveGroupRequest
from odradek_wire.messages.offset_commit import OffsetCommitRequest
from odradek_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

PARTITIONS = [f"p{number}" for number in range(7)]
NOW = Instant(1_700_000_000_000, 0)
BEGIN_ANEW = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID)


@dataclass(eq=False)
class Client:
    """The state of a consumer in the group protocol."""

    name: str
    instance_id: str | None
    version: int
    alive: bool = True
    member_id: str = ""
    generation: int = -1
    owned: frozenset[str] | None = None
    asked: str = ""
    """The request whose response is pending, join or sync; empty if there is none."""
    join_response: JoinGroupResponse | None = None
    attempt: int = 0


@dataclass
class World:
    random: Random
    max_size: int = 100
    clients: list[Client] = field(default_factory=list)
    log: list[CoordinatorRecord] = field(default_factory=list)
    now: Instant = NOW
    answered: set[tuple[str, int]] = field(default_factory=set)
    owners: dict[tuple[int, str], str] = field(default_factory=dict)
    """(generation, partition) → the member that it was assigned to."""
    write_failures: float = 0.0
    numbers: int = 0

    def __post_init__(self) -> None:
        delay_ms = self.random.choice([0, 0, 3000])
        settings = GroupSettings(initial_rebalance_delay_ms=delay_ms, max_size=self.max_size)
        self.shard = new_shard(settings)

    # -- the shell, in ten lines

    def apply(self, step: GroupStep) -> None:
        for deferred, response in step.responses:
            assert isinstance(deferred, tuple)
            client, attempt = deferred
            assert (client.name, attempt) not in self.answered, "a request is answered once"
            self.answered.add((client.name, attempt))
            if client.alive and attempt == client.attempt:
                self.receive(client, response)
        error = ErrorCode.NONE
        if step.records and self.random.random() < self.write_failures:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            self.log.extend(step.records)
            for record in step.records:
                self.shard.replay(record)
        if step.write is not None:
            self.apply(self.shard.written(step.write, error, self.now))

    def pass_time(self, ms: int) -> None:
        end = self.now.monotonic_ms + ms
        while True:
            next_ms = self.shard.deadlines.next_ms()
            at_ms = end if next_ms is None or next_ms > end else max(next_ms, self.now.monotonic_ms)
            self.now = Instant(self.now.wall_ms + at_ms - self.now.monotonic_ms, at_ms)
            for step in self.shard.handle_deadlines(self.now):
                self.apply(step)
            self.check()
            if at_ms == end:
                return

    # -- what clients do

    def add_client(self) -> None:
        self.numbers += 1
        static = self.random.random() < 0.4
        name = f"c{self.numbers}"
        self.clients.append(Client(name, name if static else None, self.random.choice([5, 9])))

    def act(self, client: Client) -> None:
        if client.asked:
            return
        if client.join_response is not None:
            self.sync(client, client.join_response)
        elif client.owned is None:
            self.join(client)
        else:
            self.heartbeat(client)

    def join(self, client: Client) -> None:
        self.begin(client, "join")
        metadata = self.random.choice([b"", b"", b"x"])
        request = JoinGroupRequest(
            "g", 10_000, 30_000, client.member_id, client.instance_id, "consumer",
            [JoinGroupRequest.JoinGroupRequestProtocol("range", metadata)],
        )  # fmt: skip
        self.numbers += 1
        group_client = GroupClient(client.name, "/h", client.version, str(self.numbers))
        self.apply(shards.join(self.shard, request, group_client, (client, client.attempt), self.now))

    def sync(self, client: Client, joined: JoinGroupResponse) -> None:
        self.begin(client, "sync")
        client.join_response = None
        members = sorted(member.member_id for member in joined.members)
        dealt: dict[str, list[str]] = {member_id: [] for member_id in members}
        for number, partition in enumerate(PARTITIONS if members and not joined.skip_assignment else []):
            dealt[members[number % len(members)]].append(partition)
        request = SyncGroupRequest("g", client.generation, client.member_id, client.instance_id)
        request.assignments = [
            SyncGroupRequest.SyncGroupRequestAssignment(member_id, ",".join(partitions).encode())
            for member_id, partitions in dealt.items()
        ]
        self.apply(shards.sync(self.shard, request, (client, client.attempt), self.now))

    def heartbeat(self, client: Client) -> None:
        request = HeartbeatRequest("g", client.generation, client.member_id, client.instance_id)
        error = shards.heartbeat(self.shard, request, self.now)
        if error in BEGIN_ANEW:
            self.forget(client)
        elif error:
            client.owned = None

    def commit(self, client: Client) -> None:
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, self.numbers)
        topic = OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[partition])
        request = OffsetCommitRequest("g", client.generation, client.member_id, client.instance_id, topics=[topic])
        result = shards.commit(self.shard, request, 8, self.now)
        if not isinstance(result, ErrorCode):
            self.log.extend(result[0])
            for record in result[0]:
                self.shard.replay(record)

    def leave(self, client: Client) -> None:
        identity = LeaveGroupRequest.MemberIdentity(client.member_id, client.instance_id)
        step, _ = shards.leave(self.shard, LeaveGroupRequest("g", members=[identity]), self.now)
        client.alive = False
        self.apply(step)

    def come_back(self, client: Client) -> None:
        """A static member restarts: the same instance id, without its member id."""
        client.alive = False
        self.clients.append(Client(f"{client.name}'", client.instance_id, client.version))

    def begin(self, client: Client, what: str) -> None:
        client.attempt += 1
        client.asked = what

    def forget(self, client: Client) -> None:
        client.member_id, client.generation, client.owned, client.join_response = "", -1, None, None

    def receive(self, client: Client, response: JoinGroupResponse | SyncGroupResponse) -> None:
        client.asked = ""
        if isinstance(response, JoinGroupResponse):
            client.owned = None
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = response.member_id
            elif response.error_code in BEGIN_ANEW:
                self.forget(client)
            elif not response.error_code:
                assert response.generation_id >= client.generation, "generations count up"
                client.member_id, client.generation, client.join_response = (
                    response.member_id,
                    response.generation_id,
                    response,
                )
        elif response.error_code in BEGIN_ANEW:
            self.forget(client)
        elif not response.error_code:
            client.owned = frozenset(response.assignment.decode().split(",")) - {""}
            for partition in client.owned:
                owner = self.owners.setdefault((client.generation, partition), client.instance_id or client.member_id)
                assert owner in (client.instance_id, client.member_id), "one owner per partition and generation"

    # -- what must hold

    def check(self) -> None:
        group = self.shard.groups.get("g")
        if not isinstance(group, ClassicGroup):
            return
        waiting = [member for member in group.members.values() if member.awaiting_join is not None]
        assert group.num_members_awaiting_join == len(waiting)
        assert not waiting or group.is_in(ClassicGroupState.PREPARING_REBALANCE)
        assert all(m.awaiting_sync is None for m in group.members.values()) or group.is_in(
            ClassicGroupState.COMPLETING_REBALANCE
        )
        assert group.leader in group.members or group.leader is None
        assert set(group.static_members.values()) <= set(group.members)
        assert set(group.pending_sync_members) <= set(group.members)
        counts: dict[str, int] = {}
        for member in group.members.values():
            for name, _ in member.protocols:
                counts[name] = counts.get(name, 0) + 1
        assert group.supported_protocols == counts

    def run(self, steps: int) -> None:
        for _ in range(steps):
            alive = [client for client in self.clients if client.alive]
            chance = self.random.random()
            if not alive or (chance < 0.1 and len(alive) < 6):
                self.add_client()
            elif chance < 0.15:
                self.leave(self.random.choice(alive))
            elif chance < 0.2:
                client = self.random.choice(alive)
                client.alive = False
                if client.instance_id and self.random.random() < 0.7:
                    self.come_back(client)
            elif chance < 0.25:
                self.commit(self.random.choice(alive))
            elif chance < 0.5:
                self.pass_time(self.random.choice([1, 100, 3000, 8000]))
            else:
                self.act(self.random.choice(alive))
            self.check()

    def calm_down(self) -> None:
        """End the failures and the delays; the group is stable within a few minutes."""
        self.write_failures = 0.0
        for _ in range(150):
            self.pass_time(3000)
            for client in [client for client in self.clients if client.alive]:
                self.act(client)
            self.check()


@pytest.mark.parametrize("seed", range(60))
def test_random_members_end_in_a_stable_group_with_one_owner_each(seed: int) -> None:
    world = World(Random(seed))
    world.write_failures = world.random.choice([0.0, 0.2])
    world.run(300)
    world.calm_down()
    alive = [client for client in world.clients if client.alive]
    assert [client.asked for client in alive] == [""] * len(alive), "every pending request was completed"
    group = world.shard.groups["g"]
    assert isinstance(group, ClassicGroup)
    assert sorted(group.members) == sorted(client.member_id for client in alive), (
        "the members are the clients that are alive"
    )
    assert group.state is (ClassicGroupState.STABLE if alive else ClassicGroupState.EMPTY)
    owned = sorted(partition for client in alive for partition in client.owned or ())
    assert owned == (PARTITIONS if alive else [])
    assert {client.generation for client in alive} <= {group.generation}


@pytest.mark.parametrize("seed", range(20))
def test_a_restart_loads_the_group_from_the_log(seed: int) -> None:
    world = World(Random(seed))
    world.run(200)
    world.calm_down()
    again = new_shard(world.shard.settings)
    for record in world.log:
        again.load(record)
    assert again.offsets.of_group("g") == world.shard.offsets.of_group("g")
    before, after = world.shard.groups["g"], again.groups["g"]
    assert isinstance(before, ClassicGroup)
    assert isinstance(after, ClassicGroup)
    kept = ("generation", "protocol_type", "protocol_name", "leader", "members", "static_members", "state")
    assert [getattr(after, name) for name in kept] == [getattr(before, name) for name in kept]


@pytest.mark.parametrize("seed", range(10))
def test_a_generation_has_at_most_group_max_size_members(seed: int) -> None:
    world = World(Random(seed), max_size=3)
    for _ in range(100):
        world.run(3)
        group = world.shard.groups.get("g")
        assert group is None or (isinstance(group, ClassicGroup) and group.num_members_awaiting_join <= 3)
