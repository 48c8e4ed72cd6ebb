"""Deliberate bugs in replication, groups and logs: the simulation finds each within a few seeds."""

from __future__ import annotations

import asyncio
import errno
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek_broker.groups.core import classic_session
from odradek_broker.groups.core.classic_group import ClassicGroup
from odradek_broker.groups.core.group_step import GroupStep
from odradek_broker.groups.group_partition import GroupPartition
from odradek_broker.replication import replica_fetcher
from odradek_broker.replication.core.fetch_session import FetchSession
from odradek_broker.replication.core.partition_leader import HighWatermarkAdvanced, PartitionLeader, ProposeIsr
from odradek_broker.replication.log_directories import LogDirectories
from odradek_broker.replication.partition import Partition
from odradek_controller import replay
from odradek_controller.commands import brokers
from odradek_log.log import Log
from odradek_log.log_flusher import LogFlusher
from odradek_wire.errors import ErrorCode
from simulation.checks import Checks
from simulation.simulation import SETTLED_WITHIN_S, Failure, Script, Simulation, simulate

pytestmark = pytest.mark.long
SEEDS = range(40)
"""The seeds that may pass before one finds the bug. A bug that random faults rarely reveal has a script of faults."""
Plant = Callable[[pytest.MonkeyPatch], None]


def high_watermark_that_ignores_followers(patch: pytest.MonkeyPatch) -> None:
    def advance(self: PartitionLeader) -> list[Any]:
        if self.log_end_offset <= self.high_watermark:
            return []
        self.high_watermark = self.log_end_offset
        return [HighWatermarkAdvanced(self.high_watermark)]

    patch.setattr(PartitionLeader, "advance_high_watermark", advance)


def high_watermark_of_the_fastest_follower(patch: pytest.MonkeyPatch) -> None:
    def advance(self: PartitionLeader) -> list[Any]:
        reached = max((each.log_end_offset for each in self.followers.values()), default=0)
        if min(reached, self.log_end_offset) <= self.high_watermark:
            return []
        self.high_watermark = min(reached, self.log_end_offset)
        return [HighWatermarkAdvanced(self.high_watermark)]

    patch.setattr(PartitionLeader, "advance_high_watermark", advance)


def high_watermark_that_retreats_to_the_slowest_follower(patch: pytest.MonkeyPatch) -> None:
    def advance(self: PartitionLeader) -> list[Any]:
        ends = [each.log_end_offset for each in self.followers.values()]
        reached = max(min([self.log_end_offset, *ends]), 0)
        if reached == self.high_watermark:
            return []
        self.high_watermark = reached
        return [HighWatermarkAdvanced(reached)]

    patch.setattr(PartitionLeader, "advance_high_watermark", advance)


def follower_that_truncates_to_its_high_watermark(patch: pytest.MonkeyPatch) -> None:
    follow = Partition.follow

    def truncating(self: Partition, leader_epoch: int) -> None:
        follow(self, leader_epoch)
        if self.is_following:
            self.log.truncate_to(self.high_watermark)

    patch.setattr(Partition, "follow", truncating)


def follower_that_never_truncates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        replica_fetcher, "truncation_point", lambda leader, own, log_end_offset, high_watermark: log_end_offset
    )


def isr_that_admits_lagging_followers(patch: pytest.MonkeyPatch) -> None:
    fetched = PartitionLeader.follower_fetched

    def taking(self: PartitionLeader, follower: int, *args: Any, **options: Any) -> list[Any]:
        effects = fetched(self, follower, *args, **options)
        if follower in self.followers and follower not in self.isr and self.proposed_isr is None:
            self.proposed_isr = self.isr | {follower}
            effects.append(ProposeIsr(self.proposed_isr))
        return effects

    patch.setattr(PartitionLeader, "follower_fetched", taking)
    # A pending proposal would hold the high watermark back, and so hide the bug.
    advance = PartitionLeader.advance_high_watermark

    def advancing(self: PartitionLeader) -> list[Any]:
        proposed, self.proposed_isr = self.proposed_isr, None
        try:
            return advance(self)
        finally:
            self.proposed_isr = proposed

    patch.setattr(PartitionLeader, "advance_high_watermark", advancing)


def leader_that_ignores_its_replacement(patch: pytest.MonkeyPatch) -> None:
    follow, resign = Partition.follow, Partition.resign

    def keep_leading(change: Callable[..., None]) -> Callable[..., None]:
        def changed(self: Partition, leader_epoch: int, *error: ErrorCode) -> None:
            if self.leader is None or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in error:
                change(self, leader_epoch, *error)

        return changed

    patch.setattr(Partition, "follow", keep_leading(follow))
    patch.setattr(Partition, "resign", keep_leading(resign))


def election_without_a_new_leader_epoch(patch: pytest.MonkeyPatch) -> None:
    changed = replay.changed_partition

    def same_epoch(partition: Any, record: Any) -> Any:
        return changed(partition, record)._replace(leader_epoch=partition.leader_epoch)

    patch.setattr(replay, "changed_partition", same_epoch)


def follower_that_keeps_no_producer_state(patch: pytest.MonkeyPatch) -> None:
    append, update = Log.append_as_follower, Log.update_producers
    following: list[Log] = []

    def appending(self: Log, records: Any, **limits: Any) -> Any:
        following.append(self)
        try:
            return append(self, records, **limits)
        finally:
            following.pop()

    def updating(self: Log, header: Any, batch: Any) -> None:
        if self not in following:
            update(self, header, batch)

    patch.setattr(Log, "append_as_follower", appending)
    patch.setattr(Log, "update_producers", updating)


def fetch_that_returns_records_above_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    read = Log.read

    def unlimited(self: Log, offset: int, max_bytes: int, *, limit: int | None = None, min_one: bool = True) -> Any:
        return read(self, offset, max_bytes, limit=None, min_one=min_one)

    patch.setattr(Log, "read", unlimited)


def new_leader_that_returns_an_old_latest_offset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "is_behind_epoch_start", property(lambda self: False))


def offset_commit_that_returns_before_it_is_replicated(patch: pytest.MonkeyPatch) -> None:
    apply = GroupPartition.apply

    def hasty(self: GroupPartition, step: GroupStep) -> None:
        pending, step.responses_once_written = step.responses_once_written, []
        if self.partition.error == ErrorCode.NONE:
            step.responses.extend((each.deferred, each.response) for each in pending)
        apply(self, step)

    patch.setattr(GroupPartition, "apply", hasty)


def offset_commits_of_any_generation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassicGroup, "validate_offset_commit", lambda *args, **checked: ErrorCode.NONE)


def fetch_session_without_updates(patch: pytest.MonkeyPatch) -> None:
    update = FetchSession.update

    def updating(self: FetchSession, wanted: Any, forgotten: Any) -> None:
        known = {} if self.privileged else self.partitions  # only sessions of consumers have the bug
        update(self, [each for each in wanted if (each.topic, each.index) not in known], forgotten)

    patch.setattr(FetchSession, "update", updating)


def broker_that_ignores_a_failed_log_directory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogDirectories, "handle_failure", lambda self, directory: None)


def sync_group_that_returns_one_assignment_to_all(patch: pytest.MonkeyPatch) -> None:
    sync = classic_session.sync

    def same(step: Any, group: Any, request: Any, deferred: Any) -> None:
        for entry in request.assignments:
            entry.assignment = request.assignments[0].assignment
        sync(step, group, request, deferred)

    patch.setattr(classic_session, "sync", same)


def recovery_point_beyond_the_flushed_offset(patch: pytest.MonkeyPatch) -> None:
    def believe(self: LogFlusher, end_of: Any) -> None:
        self.recovery_point = max(self.recovery_point, end_of())

    patch.setattr(LogFlusher, "flush_to", believe)


async def two_brokers_are_killed_together(simulation: Simulation) -> None:
    """Kill two of three brokers repeatedly, soon after an election."""
    cluster = simulation.cluster
    for _ in range(4):
        await asyncio.sleep(simulation.chance.uniform(2, 3))
        both = simulation.chance.sample(cluster.ids, 2)
        for broker in both:
            await cluster.kill(broker)
        await asyncio.sleep(1)
        for broker in both:
            await cluster.start_broker(broker)


async def each_broker_is_cut_off_and_killed(simulation: Simulation) -> None:
    """Let each broker append records that no other broker has, and kill it."""
    cluster, network = simulation.cluster, simulation.network
    for broker in cluster.ids:
        host = cluster.hosts[broker]
        directions = [way for other in cluster.hosts if other != host for way in ((host, other), (other, host))]
        network.block(directions)
        await asyncio.sleep(3)
        await cluster.kill(broker)
        network.unblock(directions)
        await asyncio.sleep(1)
        await cluster.start_broker(broker)
        await asyncio.sleep(3)


async def no_faults(simulation: Simulation) -> None:
    await asyncio.sleep(4)


async def a_log_directory_of_every_broker_fails(simulation: Simulation) -> None:
    """Fail each log directory in turn; each works again before the next one fails. No broker restarts."""
    cluster = simulation.cluster
    for host in cluster.hosts:
        await asyncio.sleep(2)
        simulation.disk.fail(f"/{host}/data", errno.EIO, calls=0)
        await asyncio.sleep(2)
        simulation.disk.heal(f"/{host}/data")


LOST = "acknowledged|was read|goes back|failed with|OFFSET_OUT_OF_RANGE"
ALL_IN_SYNC = "in the ISR ends"
PLANTED: list[tuple[Plant, str, Script | None]] = [
    (high_watermark_that_ignores_followers, LOST, None),
    (high_watermark_of_the_fastest_follower, ALL_IN_SYNC, None),
    (high_watermark_that_retreats_to_the_slowest_follower, "retreats|goes back", None),
    (follower_that_truncates_to_its_high_watermark, LOST, two_brokers_are_killed_together),
    (follower_that_never_truncates, "differ|not within", None),
    (isr_that_admits_lagging_followers, LOST, None),
    (leader_that_ignores_its_replacement, "not within|goes back|was acknowledged", None),
    (election_without_a_new_leader_epoch, "both lead", None),
    (follower_that_keeps_no_producer_state, "repeated|reordered|failed with|not committed|aborted", None),
    (fetch_that_returns_records_above_the_high_watermark, "the high watermark is", None),
    (new_leader_that_returns_an_old_latest_offset, "the latest offset .* goes back", None),
    (
        offset_commit_that_returns_before_it_is_replicated,
        "the committed offset .* goes back",
        each_broker_is_cut_off_and_killed,
    ),
    (offset_commits_of_any_generation, "OffsetCommit of generation", None),
    (sync_group_that_returns_one_assignment_to_all, "both own", None),
    (broker_that_ignores_a_failed_log_directory, "not within|failed with", a_log_directory_of_every_broker_fails),
    (recovery_point_beyond_the_flushed_offset, "differ|was acknowledged|no record batch in|are missing", None),
]


@pytest.mark.parametrize(("plant", "rule", "script"), PLANTED, ids=[plant.__name__ for plant, *_ in PLANTED])
def test_the_simulation_finds(plant: Plant, rule: str, script: Script | None, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    if rule != ALL_IN_SYNC:
        # This check looks into the brokers, and would find every bug before the checks of clients do.
        monkeypatch.setattr(Checks, "isr_ends", lambda *facts: None)
    found = next(filter(None, (_why(seed, script, 20) for seed in SEEDS)), "nothing")
    assert re.search(rule, found), found


def test_the_simulation_finds_a_fetch_session_without_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is short, because the reader repeats its Fetch without a pause."""
    fetch_session_without_updates(monkeypatch)
    with pytest.raises(Failure, match="the reader reaches the end"):
        simulate(0, script=no_faults, settled_within_s=4, workloads=())


async def one_isr_member_loses_power_and_another_is_killed(simulation: Simulation) -> None:
    """By the ISR alone, the controller may elect either broker, but the first one that returns has lost records."""
    cluster = simulation.cluster
    first, second, third = cluster.ids[:3]
    await asyncio.sleep(3)
    await cluster.kill(first)
    await asyncio.sleep(4)
    await cluster.lose_power(second)
    await cluster.kill(third)
    await cluster.start_broker(second)
    await asyncio.sleep(2)
    for broker in cluster.ids:
        await cluster.start_broker(broker)


SCRIPTED_SEEDS = range(12)


def test_a_replica_after_a_power_loss_is_not_an_eligible_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> Iterator[str]:
        script = one_isr_member_loses_power_and_another_is_killed
        return filter(None, (_why(seed, script) for seed in SCRIPTED_SEEDS))

    assert list(found()) == []
    registration_that_hides_an_unclean_shutdown(monkeypatch)
    assert re.search(LOST, next(found(), "nothing"))


def registration_that_hides_an_unclean_shutdown(patch: pytest.MonkeyPatch) -> None:
    register = brokers.register_broker

    def believing(image: Any, request: Any, *rest: Any) -> Any:
        known = image.brokers.get(request.broker_id)
        request.previous_broker_epoch = -1 if known is None else known.epoch
        return register(image, request, *rest)

    patch.setattr(brokers, "register_broker", believing)


def _why(seed: int, script: Script | None, settled_within_s: float = SETTLED_WITHIN_S) -> str | None:
    try:
        simulate(seed, script=script, settled_within_s=settled_within_s, workloads=())
    except Failure as failure:
        return failure.why
    return None
