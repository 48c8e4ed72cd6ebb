"""Replicas on failed disks of live brokers, without directory ids: their leaders and ISRs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from controller.tests.controller_kit import cluster, context, image_of, uuid_of

from odradek_controller.commands.brokers import fence_broker
from odradek_controller.commands.elect_leaders import balance
from odradek_controller.commands.lost_replicas import apply_replica_report, forget_lost_replicas
from odradek_controller.image import LOST_DIRECTORY, NO_LEADER, ClusterImage, PartitionRegistration
from odradek_controller.zookeeper.load import zookeeper_levels
from odradek_wire.messages.partition_record import PartitionRecord
from odradek_wire.messages.topic_record import TopicRecord

T = uuid_of(500)
PARTITION = (T, 0)
THREE = replace(cluster(dict.fromkeys((1, 2, 3))), levels=zookeeper_levels({}))


def with_partition(replicas: list[int], isr: list[int]) -> ClusterImage:
    return image_of([TopicRecord("t", T), PartitionRecord(0, T, replicas, isr, [], [], isr[0], 0, 3, 5)], THREE)


def partition(image: ClusterImage) -> PartitionRegistration:
    found = image.partition("t", 0)
    assert found is not None
    return found


def after_report(
    image: ClusterImage, broker: int, lost: Iterable[object] = (), served: Iterable[object] = ()
) -> ClusterImage:
    return image_of(apply_replica_report(image, broker, set(lost), set(served), context()), image)  # type: ignore[arg-type]


def test_a_lost_leader_leaves_the_isr_and_the_next_one_leads() -> None:
    after = partition(after_report(with_partition([1, 2, 3], [1, 2, 3]), 1, lost=[PARTITION]))
    assert (after.leader, after.leader_epoch, after.isr) == (2, 4, (2, 3))
    assert after.directory(1) == LOST_DIRECTORY
    assert after.directory(2) != LOST_DIRECTORY


def test_a_lost_follower_leaves_the_isr_in_a_new_leader_epoch() -> None:
    after = partition(after_report(with_partition([1, 2, 3], [1, 2, 3]), 3, lost=[PARTITION]))
    assert (after.leader, after.leader_epoch, after.isr) == (1, 4, (1, 2))


def test_the_last_isr_member_leads_again_when_it_is_served_again() -> None:
    lost = after_report(with_partition([1, 2], [1]), 1, lost=[PARTITION])
    assert (partition(lost).leader, partition(lost).isr) == (NO_LEADER, (1,))
    after = partition(after_report(lost, 1, served=[PARTITION]))
    assert (after.leader, after.isr, after.directories) == (1, (1,), ())


def test_a_known_loss_and_an_unassigned_replica_change_nothing() -> None:
    image = with_partition([1, 2], [1, 2])
    assert apply_replica_report(image, 3, [PARTITION], [], context()) == []
    assert apply_replica_report(image, 1, [], [PARTITION], context()) == []
    lost = after_report(image, 1, lost=[PARTITION])
    assert apply_replica_report(lost, 1, [PARTITION], [], context()) == []
    assert apply_replica_report(lost, 1, [(uuid_of(7), 0)], [], context()) == []


def test_a_lost_replica_is_never_elected() -> None:
    lost = after_report(with_partition([1, 2, 3], [1, 2, 3]), 1, lost=[PARTITION])
    assert balance(lost, context({"leader.imbalance.per.broker.percentage": "0"})) == []
    gone = image_of(fence_broker(image_of(fence_broker(lost, 3, context()), lost), 2, context()), lost)
    assert partition(gone).leader != 1


def test_a_restarted_broker_has_no_lost_replicas() -> None:
    lost = after_report(after_report(with_partition([1, 2, 3], [1, 2, 3]), 1, lost=[PARTITION]), 2, lost=[PARTITION])
    after = partition(image_of(forget_lost_replicas(lost, 1, context()), lost))
    assert [after.directory(broker) == LOST_DIRECTORY for broker in (1, 2, 3)] == [False, True, False]
