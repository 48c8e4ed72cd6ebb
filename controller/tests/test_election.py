"""Leader election, and the changes of a partition when brokers leave."""

from collections.abc import Collection

import pytest

from odradek_controller.election import Election, elect, partition_change_record, without_broker
from odradek_controller.image import NO_LEADER, RECOVERING, PartitionRegistration
from odradek_controller.replay import changed_partition
from odradek_wire.uuid import ZERO_UUID


def partition(
    replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, elr: tuple[int, ...] = ()
) -> PartitionRegistration:
    return PartitionRegistration(replicas, isr, leader, 5, 8, eligible_leader_replicas=elr)


@pytest.mark.parametrize(
    ("isr", "leader", "active", "election", "expected"),
    [
        ((1, 2, 3), 1, {1, 2, 3}, Election.ONLINE, (1, False)),
        ((1, 2, 3), 2, {1, 2, 3}, Election.ONLINE, (2, False)),
        ((1, 2, 3), 2, {1, 2, 3}, Election.PREFERRED, (1, False)),
        ((2, 3), 2, {1, 2, 3}, Election.PREFERRED, (2, False)),
        ((1, 2, 3), 1, {2, 3}, Election.ONLINE, (2, False)),
        ((3, 2), 1, {2, 3}, Election.ONLINE, (2, False)),
        ((1,), 1, {2, 3}, Election.ONLINE, (NO_LEADER, False)),
        ((1,), 1, {2, 3}, Election.UNCLEAN, (2, True)),
        ((1,), 1, set(), Election.UNCLEAN, (NO_LEADER, False)),
    ],
)
def test_the_leader_is_the_first_assigned_replica_that_can_lead(
    isr: tuple[int, ...], leader: int, active: Collection[int], election: Election, expected: tuple[int, bool]
) -> None:
    assert elect(partition((1, 2, 3), isr, leader), lambda broker: broker in active, election) == expected


def test_an_eligible_leader_leads_only_when_the_isr_is_empty() -> None:
    assert elect(partition((1, 2), (2,), 2, elr=(1,)), lambda broker: True, Election.PREFERRED) == (2, False)
    assert elect(partition((1, 2), (), NO_LEADER, elr=(2,)), lambda broker: True, Election.ONLINE) == (2, False)


def after_loss(
    before: PartitionRegistration,
    broker: int,
    active: set[int],
    *,
    unclean: bool = False,
    elr: bool = True,
    min_isr: int = 1,
) -> PartitionRegistration:
    record = without_broker(
        ZERO_UUID,
        0,
        before,
        broker,
        active=lambda replica: replica in active,
        unclean=unclean,
        elr_enabled=elr,
        min_isr=min_isr,
    )
    return before if record is None else changed_partition(before, record)


def test_the_next_in_sync_replica_leads_in_a_new_leader_epoch() -> None:
    after = after_loss(partition((1, 2, 3), (1, 2, 3), 1), 1, {1, 2, 3})
    assert after == PartitionRegistration((1, 2, 3), (2, 3), 2, 6, 9)


def test_a_lost_follower_leaves_the_isr_and_the_leader_epoch_stays() -> None:
    after = after_loss(partition((1, 2, 3), (1, 2, 3), 1), 3, {1, 2, 3})
    assert after == PartitionRegistration((1, 2, 3), (1, 2), 1, 5, 9)


def test_the_last_isr_member_becomes_an_eligible_leader() -> None:
    after = after_loss(partition((1, 2), (1,), 1), 1, {1, 2})
    assert after == PartitionRegistration(
        (1, 2), (), NO_LEADER, 6, 9, eligible_leader_replicas=(1,), last_known_elr=(1,)
    )
    back = partition_change_record(ZERO_UUID, 0, after, active=lambda broker: True, elr_enabled=True)
    assert back is not None
    assert changed_partition(after, back) == PartitionRegistration((1, 2), (1,), 1, 7, 10)


def test_the_last_isr_member_stays_without_eligible_leaders() -> None:
    after = after_loss(partition((1, 2), (1,), 1), 1, {1, 2}, elr=False)
    assert after == PartitionRegistration((1, 2), (1,), NO_LEADER, 6, 9)


def test_a_replica_leaving_an_isr_below_min_isr_stays_eligible() -> None:
    after = after_loss(partition((1, 2, 3), (1, 2), 1), 2, {1, 2, 3}, min_isr=2)
    assert after == PartitionRegistration((1, 2, 3), (1,), 1, 5, 9, eligible_leader_replicas=(2,))


def test_an_unclean_leader_is_alone_in_the_isr_and_recovering() -> None:
    after = after_loss(partition((1, 2, 3), (1,), 1), 1, {1, 2, 3}, unclean=True, elr=False)
    assert after == PartitionRegistration((1, 2, 3), (2,), 2, 6, 9, leader_recovery_state=RECOVERING)


def test_nothing_is_recorded_when_nothing_changes() -> None:
    assert partition_change_record(ZERO_UUID, 0, partition((1, 2), (1, 2), 1), active=lambda broker: True) is None


def test_every_change_but_an_expanded_isr_may_bump_the_leader_epoch() -> None:
    before = partition((1, 2), (1, 2), 1)

    def epoch_changes(wanted: PartitionRegistration) -> tuple[int, int]:
        """Return how far the leader epoch moves without and with `bump_leader_epoch`."""
        found = []
        for bump in (False, True):
            record = partition_change_record(
                ZERO_UUID, 0, before, wanted, active=lambda broker: True, bump_leader_epoch=bump
            )
            assert record is not None
            found.append(changed_partition(before, record).leader_epoch - before.leader_epoch)
        return found[0], found[1]

    assert epoch_changes(before._replace(isr=(1,))) == (0, 1)
    assert epoch_changes(before._replace(replicas=(1, 2, 3), adding_replicas=(3,))) == (0, 1)
    assert epoch_changes(before._replace(replicas=(2, 1))) == (0, 1)
    assert epoch_changes(before._replace(leader_recovery_state=RECOVERING)) == (0, 0)
    before = partition((1, 2, 3), (1, 2), 1)
    assert epoch_changes(before._replace(isr=(1, 2, 3))) == (0, 0)
