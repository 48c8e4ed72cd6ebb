"""AlterPartition: a leader proposes another ISR; the epochs decide whether it is still the leader (KIP-497)."""

from __future__ import annotations

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from odradek_wire.messages.partition_change_record import PartitionChangeRecord

from ..election import partition_change_record
from ..image import RECOVERED, RECOVERING, ClusterImage, PartitionRegistration, TopicImage
from ..replay import changed_partition
from .context import CommandContext
from .policy import election_policy

Proposal = AlterPartitionRequest.PartitionData
PartitionResponse = AlterPartitionResponse.PartitionData


def alter_partition(
    image: ClusterImage, request: AlterPartitionRequest, context: CommandContext
) -> tuple[list[Message], AlterPartitionResponse]:
    """Decide each partition alone; a stale broker epoch fails the whole request."""
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return [], AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    records: list[Message] = []
    topics = []
    for topic in request.topics:
        found = image.topics_by_id.get(topic.topic_id)
        results = []
        for proposal in topic.partitions:
            result, record = _alter(image, request.broker_id, found, proposal, context)
            results.append(result)
            if record is not None:
                records.append(record)
        topics.append(AlterPartitionResponse.TopicData(topic_id=topic.topic_id, partitions=results))
    return records, AlterPartitionResponse(topics=topics)


def _alter(
    image: ClusterImage, broker_id: int, topic: TopicImage | None, proposal: Proposal, context: CommandContext
) -> tuple[PartitionResponse, PartitionChangeRecord | None]:
    index = proposal.partition_index
    if topic is None:
        return PartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_ID), None
    if not 0 <= index < len(topic.partitions):
        return PartitionResponse(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None
    partition = topic.partitions[index]
    wanted = {state.broker_id: state.broker_epoch for state in proposal.new_isr_with_epochs}
    wanted.update((replica, -1) for replica in proposal.new_isr if replica not in wanted)
    error = _check(image, broker_id, partition, proposal, wanted)
    if error is not ErrorCode.NONE:
        return PartitionResponse(index, error), None
    record = partition_change_record(
        topic.id,
        index,
        partition,
        partition._replace(isr=tuple(wanted), leader_recovery_state=proposal.leader_recovery_state),
        active=image.is_active,
        elr_enabled=image.levels.elr_enabled,
        min_isr=election_policy(image, topic.name, context.layers(image)).min_isr,
        # In ZooKeeper mode the response gives the leader its new ISR, but the leader learns that a reassignment is
        # complete only from a LeaderAndIsr request with a new leader epoch.
        bump_leader_epoch=image.levels.bumps_leader_epoch and partition.reassigning,
    )
    after = partition if record is None else changed_partition(partition, record)
    if after.leader != broker_id:
        # The new ISR completed the reassignment, which removed this leader: an error, although the ISR has changed.
        return PartitionResponse(index, ErrorCode.NEW_LEADER_ELECTED), record
    return _state(index, after), record


def _state(index: int, partition: PartitionRegistration) -> PartitionResponse:
    return PartitionResponse(
        index,
        ErrorCode.NONE,
        partition.leader,
        partition.leader_epoch,
        list(partition.isr),
        partition.leader_recovery_state,
        partition.partition_epoch,
    )


def _check(
    image: ClusterImage, broker_id: int, partition: PartitionRegistration, proposal: Proposal, wanted: dict[int, int]
) -> ErrorCode:
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.leader != broker_id:
        return ErrorCode.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if broker_id not in wanted or not set(wanted) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if proposal.leader_recovery_state == RECOVERING and (
        len(wanted) > 1 or partition.leader_recovery_state == RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    for replica, epoch in wanted.items():
        broker = image.brokers.get(replica)
        if broker is None or not image.is_active(replica) or epoch not in (-1, broker.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE
