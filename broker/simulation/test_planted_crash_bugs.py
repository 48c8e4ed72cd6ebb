"""What a crash must not cost is broken on purpose, in the broker's own code, and a broker that is alone is found out by
its crashes within a few seeds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from odradek_broker.groups.core.pending_offsets import PendingTransactionalOffsets
from odradek_broker.replication.log_syncer import LogSyncer
from odradek_broker.replication.partition import Partition
from odradek_log.log import Log
from odradek_log.log_segment import LogSegment
from odradek_log.log_segments import LogSegments
from odradek_log.producer_state_manager import ProducerStateManager
from simulation.crashes import CRASHES, Crashes
from simulation.embedded_brokers import EmbeddedBrokers
from simulation.simulation import Failure, Simulation, simulate

SEEDS = range(30)
SETTLED_WITHIN_S = 20
Plant = Callable[[pytest.MonkeyPatch], None]


def disk_that_forgets_though_no_acknowledgement_waits_for_it(patch: pytest.MonkeyPatch) -> None:
    """Nothing is wrong with the broker: this is what it is asked not to wait for."""
    begin = Crashes.__init__

    def forgetting(self: Crashes, *around: Any, forgets: bool) -> None:
        begin(self, *around, forgets=not forgets)

    patch.setattr(Crashes, "__init__", forgetting)


def acknowledgements_that_wait_for_no_disk(patch: pytest.MonkeyPatch) -> None:
    def begin(self: LogSyncer, partition: Partition) -> None:
        partition.log.flusher.recovery_point = partition.log.log_end_offset
        partition.synced()

    patch.setattr(LogSyncer, "begin", begin)


def syncs_that_do_not_reach_the_disk(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogSegment, "flush", lambda self: None)


def producers_that_a_restart_forgets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Log, "rebuild_producer_state", lambda self, **options: None)


def duplicates_that_are_appended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStateManager, "check", lambda self, *facts: None)


def readers_that_are_told_of_no_aborted_transaction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogSegments, "aborted", lambda self, start, end: [])


def committed_records_that_end_at_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "last_stable_offset", property(lambda self: self.high_watermark))


def offsets_of_a_transaction_that_are_lost_at_its_commit(patch: pytest.MonkeyPatch) -> None:
    take = PendingTransactionalOffsets.take

    def losing(self: PendingTransactionalOffsets, producer_id: int) -> Any:
        take(self, producer_id)
        return {}

    patch.setattr(PendingTransactionalOffsets, "take", losing)


LOST = (
    "acknowledged|OFFSET_OUT_OF_RANGE|both own|the latest offset of|was read|goes back|failed with|are no batch|"
    "had committed"
)
TWICE = "repeated|reordered|is stored 2 times|failed with"
PLANTED: list[tuple[Plant, str]] = [
    (disk_that_forgets_though_no_acknowledgement_waits_for_it, LOST),
    (acknowledgements_that_wait_for_no_disk, LOST),
    (syncs_that_do_not_reach_the_disk, LOST),
    (producers_that_a_restart_forgets, f"{TWICE}|was aborted"),
    (duplicates_that_are_appended, TWICE),
    (readers_that_are_told_of_no_aborted_transaction, "was aborted"),
    (committed_records_that_end_at_the_high_watermark, "was aborted or is open"),
    (offsets_of_a_transaction_that_are_lost_at_its_commit, "had committed|is stored [02] times"),
]


@pytest.mark.parametrize(("plant", "rule"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_crashes_find(plant: Plant, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = next(filter(None, map(_why, SEEDS)), "nothing")
    assert re.search(rule, found), found


def _why(seed: int) -> str | None:
    try:
        simulate(seed, "alone", settled_within_s=SETTLED_WITHIN_S, workloads=())
    except Failure as failure:
        return failure.why
    return None


async def all_lose_power_at_once(simulation: Simulation) -> None:
    assert isinstance(simulation.cluster, EmbeddedBrokers)
    for _ in range(3):
        await asyncio.sleep(simulation.chance.uniform(1.5, 4))
        await simulation.cluster.lose_power_everywhere()


@pytest.mark.parametrize("seed", range(3))
def test_brokers_that_lose_power_all_at_once_have_what_they_acknowledged_if_that_waited_for_their_disks(
    seed: int,
) -> None:
    simulate(seed, script=all_lose_power_at_once, durable=True)


def test_brokers_that_lose_power_all_at_once_lose_what_they_acknowledged_if_that_did_not_wait() -> None:
    with pytest.raises(Failure, match=LOST):
        simulate(0, script=all_lose_power_at_once, durable=False)


def test_a_run_crashes_so_often_and_reaches_points_of_many_kinds() -> None:
    reached = set()
    for seed in range(2):
        run: Simulation = simulate(seed, "alone")
        assert run.points is not None
        assert getattr(run.cluster, "crashes", 0) >= CRASHES
        reached |= {kind for _, kind in run.points.reached}
    assert len(reached) >= 4
