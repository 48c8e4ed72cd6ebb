"""Reassignments and elections: the partition after each request."""

from dataclasses import replace

import pytest
from controller.tests.controller_kit import cluster, context, directory_of, image_of, uuid_of

from odradek_controller.commands.alter_partition import alter_partition
from odradek_controller.commands.brokers import fence_broker
from odradek_controller.commands.elect_leaders import PREFERRED, UNCLEAN, balance, elect_leaders
from odradek_controller.commands.reassign import alter_reassignments, list_reassignments
from odradek_controller.image import NO_LEADER, RECOVERING, ClusterImage, PartitionRegistration
from odradek_controller.levels import Emulation
from odradek_controller.zookeeper.load import zookeeper_levels
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_partition import AlterPartitionRequest
from odradek_wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from odradek_wire.messages.elect_leaders import ElectLeadersRequest
from odradek_wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek_wire.messages.partition_record import PartitionRecord
from odradek_wire.messages.topic_record import TopicRecord

T = uuid_of(500)
FIVE = cluster(dict.fromkeys((1, 2, 3, 4, 5)))


def with_partition(
    replicas: list[int], isr: list[int], *, leader: int | None = None, image: ClusterImage = FIVE
) -> ClusterImage:
    directories = [directory_of(broker) for broker in replicas]
    first = isr[0] if leader is None else leader
    return image_of(
        [TopicRecord("t", T), PartitionRecord(0, T, replicas, isr, [], [], first, 0, 3, 5, directories)], image
    )


def partition(image: ClusterImage) -> PartitionRegistration:
    found = image.partition("t", 0)
    assert found is not None
    return found


def reassigned(image: ClusterImage, replicas: list[int] | None, topic: str = "t", **more: bool) -> ClusterImage:
    """Return the image after the request, which must succeed."""
    image, error = altered(image, replicas, topic, **more)
    assert error == (ErrorCode.NONE, None)
    return image


def altered(
    image: ClusterImage, replicas: list[int] | None, topic: str = "t", index: int = 0, **more: bool
) -> tuple[ClusterImage, tuple[int, str | None]]:
    request = AlterPartitionReassignmentsRequest(
        topics=[
            AlterPartitionReassignmentsRequest.ReassignableTopic(
                topic, [AlterPartitionReassignmentsRequest.ReassignablePartition(index, replicas)]
            )
        ],
        **more,
    )
    records, response = alter_reassignments(image, request, context())
    result = response.responses[0].partitions[0]
    return image_of(records, image), (result.error_code, result.error_message)


def isr_changed(image: ClusterImage, isr: list[int]) -> tuple[ClusterImage, int]:
    """Return the image after the leader's AlterPartition, and the error of the response."""
    now = partition(image)
    proposal = AlterPartitionRequest.PartitionData(
        0, now.leader_epoch, isr, leader_recovery_state=0, partition_epoch=now.partition_epoch
    )
    request = AlterPartitionRequest(
        now.leader,
        image.brokers[now.leader].epoch,
        [AlterPartitionRequest.TopicData(topic_id=T, partitions=[proposal])],
    )
    records, response = alter_partition(image, request, context())
    return image_of(records, image), response.topics[0].partitions[0].error_code


def test_a_reassignment_keeps_old_replicas_until_new_ones_are_in_sync() -> None:
    image = reassigned(with_partition([1, 2, 3], [1, 2, 3]), [4, 5, 3])
    ongoing = partition(image)
    assert (ongoing.replicas, ongoing.adding_replicas, ongoing.removing_replicas) == (
        (4, 5, 3, 1, 2),
        (4, 5),
        (1, 2),
    )
    assert ongoing.directories == tuple(directory_of(broker) for broker in (4, 5, 3, 1, 2))
    assert (ongoing.isr, ongoing.leader, ongoing.leader_epoch) == ((1, 2, 3), 1, 3)

    image, error = isr_changed(image, [1, 2, 3, 4])
    assert (error, partition(image).reassigning) == (ErrorCode.NONE, True)

    image, error = isr_changed(image, [1, 2, 3, 4, 5])
    done = partition(image)
    assert error == ErrorCode.NEW_LEADER_ELECTED
    assert (done.replicas, done.isr, done.reassigning) == ((4, 5, 3), (3, 4, 5), False)
    assert (done.leader, done.leader_epoch) == (4, 4)
    assert done.directories == tuple(directory_of(broker) for broker in (4, 5, 3))


def test_a_removed_replica_increments_the_epoch_of_the_same_leader() -> None:
    image = reassigned(with_partition([1, 2], [1, 2]), [1, 3])
    image, error = isr_changed(image, [1, 2, 3])
    assert error == ErrorCode.NONE
    assert (partition(image).replicas, partition(image).leader, partition(image).leader_epoch) == ((1, 3), 1, 4)


def test_a_removal_completes_immediately_if_the_others_are_in_sync() -> None:
    image = reassigned(with_partition([1, 2, 3], [1, 2, 3]), [2, 1])
    assert (partition(image).replicas, partition(image).isr, partition(image).reassigning) == ((2, 1), (1, 2), False)
    assert (partition(image).leader, partition(image).leader_epoch) == (1, 4)


def test_a_reassignment_completes_when_its_added_replicas_are_in_sync() -> None:
    image = reassigned(with_partition([1, 2], [1]), [3, 2])
    image, _ = isr_changed(image, [1, 3])
    assert (partition(image).replicas, partition(image).isr, partition(image).reassigning) == ((3, 2), (3,), False)


def test_a_removal_completes_when_all_target_replicas_are_in_sync() -> None:
    image = reassigned(with_partition([1, 2, 3], [1, 2]), [3, 1])
    assert (partition(image).replicas, partition(image).removing_replicas) == ((3, 1, 2), (2,))
    image, _ = isr_changed(image, [1, 2, 3])
    assert (partition(image).replicas, partition(image).isr, partition(image).reassigning) == ((3, 1), (1, 3), False)


def test_another_order_of_replicas_changes_only_the_preferred_leader() -> None:
    image = reassigned(with_partition([1, 2, 3], [1, 2, 3]), [3, 2, 1])
    assert (partition(image).replicas, partition(image).leader, partition(image).leader_epoch) == ((3, 2, 1), 1, 3)


def test_a_reassignment_can_be_replaced_by_another() -> None:
    image = reassigned(with_partition([1, 2], [1, 2]), [3, 4])
    image = reassigned(image, [3, 5])
    now = partition(image)
    assert (now.replicas, now.adding_replicas, now.removing_replicas) == ((3, 5, 1, 2, 4), (5,), (1, 2, 4))


def test_a_replacing_reassignment_keeps_the_added_replicas() -> None:
    image = reassigned(with_partition([1, 2], [1, 2]), [3, 1])
    image = reassigned(image, [3, 2])
    now = partition(image)
    assert (now.replicas, now.adding_replicas, now.removing_replicas) == ((3, 2, 1), (3,), (1,))


def test_a_reassignment_back_to_the_old_replicas_completes() -> None:
    # Kafka 4.3 lists 3 as added and removed, forever.
    image = reassigned(with_partition([1, 2], [1, 2]), [1, 2, 3])
    image = reassigned(image, [1, 2])
    assert (partition(image).replicas, partition(image).reassigning) == ((1, 2), False)


def test_a_removed_replica_stays_when_requested_again() -> None:
    # Kafka 4.3 would still remove 1.
    image = reassigned(with_partition([1, 2], [1, 2]), [3, 2])
    image = reassigned(image, [1, 2, 3])
    now = partition(image)
    assert (now.replicas, now.adding_replicas, now.removing_replicas) == ((1, 2, 3), (3,), ())


def test_a_cancelled_reassignment_keeps_the_old_replicas() -> None:
    image = reassigned(with_partition([1, 2], [1, 2]), [3, 4])
    image, _ = isr_changed(image, [1, 2, 3])
    image = reassigned(image, None)
    now = partition(image)
    assert (now.replicas, now.isr, now.leader, now.reassigning) == ((1, 2), (1, 2), 1, False)


def test_a_cancellation_that_needs_an_unclean_election_is_refused() -> None:
    image = reassigned(with_partition([1, 2], [1, 2]), [3, 4])
    image, _ = isr_changed(image, [1, 2, 3])
    for broker in (1, 2):
        image = image_of(fence_broker(image, broker, context()), image)
    assert (partition(image).leader, partition(image).isr) == (3, (3,))
    image, (error, message) = altered(image, None)
    assert error == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "unclean" in (message or "")


@pytest.mark.parametrize(
    ("replicas", "topic", "index", "error"),
    [
        ([], "t", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 1], "t", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], "t", 0, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 2], "u", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], "t", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, "t", 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_an_invalid_reassignment_is_refused(
    replicas: list[int] | None, topic: str, index: int, error: ErrorCode
) -> None:
    before = with_partition([1, 2], [1, 2])
    image, (found, _) = altered(before, replicas, topic, index)
    assert (found, partition(image)) == (error, partition(before))


def test_an_unregistered_broker_may_keep_a_replica_but_not_get_one() -> None:
    before = with_partition([1, 2, 3], [1, 2, 3])
    without_3 = replace(before, brokers={key: broker for key, broker in before.brokers.items() if key != 3})

    def error(replicas: list[int], *, allow_unregistered: bool) -> int:
        wanted = AlterPartitionReassignmentsRequest.ReassignablePartition(0, replicas)
        request = AlterPartitionReassignmentsRequest(
            topics=[AlterPartitionReassignmentsRequest.ReassignableTopic("t", [wanted])]
        )
        _, response = alter_reassignments(without_3, request, context(), allow_unregistered=allow_unregistered)
        return int(response.responses[0].partitions[0].error_code)

    assert error([3, 1], allow_unregistered=True) == ErrorCode.NONE
    assert error([3, 1], allow_unregistered=False) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert error([1, 9], allow_unregistered=True) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_request_can_forbid_another_replication_factor() -> None:
    before = with_partition([1, 2], [1, 2])
    image, (error, _) = altered(before, [1, 2, 3], allow_replication_factor_change=False)
    assert (error, partition(image)) == (ErrorCode.INVALID_REPLICATION_FACTOR, partition(before))
    image = reassigned(before, [3, 4], allow_replication_factor_change=False)
    assert partition(image).adding_replicas == (3, 4)


def test_only_reassignments_in_progress_are_listed() -> None:
    image = reassigned(with_partition([1, 2], [1, 2]), [1, 3])
    image = image_of(
        [
            TopicRecord("u", uuid_of(501)),
            PartitionRecord(0, uuid_of(501), [1], [1], [], [], 1, 0, 0, 0, [directory_of(1)]),
        ],
        image,
    )
    (topic,) = list_reassignments(image, ListPartitionReassignmentsRequest(), context())[1].topics
    (found,) = topic.partitions
    assert (topic.name, found.replicas, found.adding_replicas, found.removing_replicas) == ("t", [1, 3, 2], [3], [2])
    requested = [
        ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name, [0, 5]) for name in ("t", "u", "none")
    ]
    assert list_reassignments(image, ListPartitionReassignmentsRequest(topics=requested), context())[1].topics == [
        topic
    ]


# -- elections --------------------------------------------------------------------------------------------------------


def elected(image: ClusterImage, election_type: int, partitions: list[int] | None) -> tuple[ClusterImage, list[int]]:
    wanted = None if partitions is None else [ElectLeadersRequest.TopicPartitions("t", partitions)]
    records, response = elect_leaders(image, ElectLeadersRequest(election_type, wanted), context())
    errors = [result.error_code for topic in response.replica_election_results for result in topic.partition_result]
    return image_of(records, image), errors


def test_a_preferred_election_elects_the_preferred_replica() -> None:
    image, errors = elected(with_partition([1, 2, 3], [1, 2, 3], leader=2), PREFERRED, [0])
    assert (errors, partition(image).leader, partition(image).leader_epoch) == ([ErrorCode.NONE], 1, 4)


def test_an_unneeded_or_impossible_election_gets_an_error() -> None:
    assert elected(with_partition([1, 2], [1, 2]), PREFERRED, [0, 3])[1] == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert elected(with_partition([1, 2], [2]), PREFERRED, [0])[1] == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    assert elected(with_partition([1, 2], [1, 2]), UNCLEAN, [0])[1] == [ErrorCode.ELECTION_NOT_NEEDED]
    assert elected(with_partition([1, 2], [1, 2]), PREFERRED, None)[1] == []


def test_an_unclean_election_takes_the_first_active_replica() -> None:
    image = with_partition([1, 2], [1], leader=NO_LEADER, image=cluster({1: None, 2: None}, fenced=[1]))
    image, errors = elected(image, UNCLEAN, None)
    now = partition(image)
    assert errors == [ErrorCode.NONE]
    assert (now.leader, now.isr, now.leader_recovery_state) == (2, (2,), RECOVERING)


def test_leaders_are_balanced_above_the_percentage_only() -> None:
    """Broker 1 is preferred for ten partitions and leads all but one or two; the limit is 10 %."""

    def image_with(elsewhere: int) -> ClusterImage:
        records = [
            PartitionRecord(
                index,
                T,
                [1, 2],
                [1, 2],
                [],
                [],
                2 if index < elsewhere else 1,
                0,
                3,
                5,
                [directory_of(1), directory_of(2)],
            )
            for index in range(10)
        ]
        return image_of([TopicRecord("t", T), *records], FIVE)

    with_percentage = replace(context(), emulation=Emulation.KAFKA_3_9)
    assert balance(image_with(1), with_percentage) == []
    image = image_with(2)
    image = image_of(balance(image, with_percentage), image)
    assert {partition.leader for partition in image.topics["t"].partitions} == {1}
    assert len(balance(image_with(1), context())) == 1, "4.3 has no percentage"


@pytest.mark.parametrize("over_zookeeper", [False, True])
def test_completing_a_reassignment_may_bump_the_leader_epoch(
    over_zookeeper: bool,
) -> None:
    image = image_of(
        [
            TopicRecord("t", T),
            PartitionRecord(0, T, [1, 2, 3], [2, 3], [], [3], 2, 0, 3, 5, [directory_of(n) for n in (1, 2, 3)]),
        ],
        image_of(fence_broker(FIVE, 1, context()), FIVE),
    )
    if over_zookeeper:
        image = replace(image, levels=zookeeper_levels({}))
    request = ElectLeadersRequest(PREFERRED, [ElectLeadersRequest.TopicPartitions("t", [0])])
    after = partition(image_of(elect_leaders(image, request, context())[0], image))
    assert (after.leader, after.adding_replicas) == (2, ())
    assert after.leader_epoch == (4 if over_zookeeper else 3)
