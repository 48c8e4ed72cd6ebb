"""The controller's deltas as requests to the brokers of ZooKeeper mode.

Owns the versions (LeaderAndIsr v7, UpdateMetadata v8, StopReplica v4), the content and the order of the requests to one
broker. Every broker gets the live brokers and all changed partitions in UpdateMetadata; a broker with replicas of them
also gets LeaderAndIsr or StopReplica. Pure: leaves sending to `controller_channel_manager`. Source:
AbstractControllerBrokerRequestBatch of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from odradek_broker.zookeeper.control_request_adapter import EPOCH_DURING_DELETE, LEADER_DURING_DELETE
from odradek_controller.image import (
    LOST_DIRECTORY,
    BrokerRegistration,
    ClusterImage,
    MetadataDelta,
    PartitionRegistration,
    TopicImage,
)
from odradek_controller.zookeeper.topic_deletion import TopicDeletionManager
from odradek_wire.message import Message
from odradek_wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek_wire.messages.stop_replica import StopReplicaRequest
from odradek_wire.messages.update_metadata import UpdateMetadataRequest
from odradek_wire.uuid import Uuid

VERSIONS: dict[type[Message], int] = {LeaderAndIsrRequest: 7, UpdateMetadataRequest: 8, StopReplicaRequest: 4}
INCREMENTAL = 0
"""The type of a request that names only changes (AbstractControlRequest.Type)."""

PartitionRef = tuple[TopicImage, int]
"""A topic and a partition number."""


def live_brokers(image: ClusterImage) -> dict[int, BrokerRegistration]:
    """Return the brokers that get requests; brokers in controlled shutdown do, too."""
    return {broker.id: broker for broker in image.live_brokers()}


def restarted_brokers(delta: MetadataDelta) -> list[int]:
    """Return the live brokers that are new or have registered again."""
    before = live_brokers(delta.before)
    return [
        broker.id
        for broker in delta.image.live_brokers()
        if (known := before.get(broker.id)) is None or known.epoch != broker.epoch
    ]


def full_requests(
    image: ClusterImage, broker_id: int, controller_id: int, deletions: TopicDeletionManager, kind: int
) -> list[Message]:
    """Return the requests with the full state for a broker.

    If `kind` is FULL, the broker marks all its other replicas as strays. StopReplica comes first, so that replicas to
    delete do not become strays.
    """
    refs = _all_refs(deletions.without_deleted(image))
    stops = [(name, _to_delete(index)) for name, index in deletions.remaining_replicas(broker_id)]
    deleting = [topic for topic in image.topics.values() if topic.id in deletions]
    return [
        *([_stop_replica(image, broker_id, controller_id, stops)] if stops else []),
        _update_metadata(image, broker_id, controller_id, refs, deleting, kind),
        _leader_and_isr(image, broker_id, controller_id, _with_replica(refs, broker_id), (), kind),
    ]


def assigned_replicas(image: ClusterImage, broker_id: int, controller_id: int) -> list[Message]:
    """Return the LeaderAndIsr request for all replicas of a broker."""
    assigned = _with_replica(_all_refs(image), broker_id)
    return [_leader_and_isr(image, broker_id, controller_id, assigned, (), INCREMENTAL)] if assigned else []


def deletion_requests(
    image: ClusterImage, broker_id: int, controller_id: int, topics: Iterable[TopicImage]
) -> list[Message]:
    """Return the requests that hide deleted topics from clients and then delete the broker's replicas."""
    stops = [
        (topic.name, _to_delete(index))
        for topic in topics
        for index, partition in enumerate(topic.partitions)
        if broker_id in partition.replicas
    ]
    return [
        _update_metadata(image, broker_id, controller_id, (), topics, INCREMENTAL),
        *([_stop_replica(image, broker_id, controller_id, stops)] if stops else []),
    ]


def _to_delete(index: int) -> StopReplicaRequest.StopReplicaPartitionState:
    return StopReplicaRequest.StopReplicaPartitionState(index, EPOCH_DURING_DELETE, True)


class ChangeRequests:
    """The requests for one delta. The constructor does the work that is the same for all brokers."""

    def __init__(self, delta: MetadataDelta, controller_id: int, deletions: TopicDeletionManager) -> None:
        self._delta = delta
        self._image = delta.image
        self._controller_id = controller_id
        self._refs: list[PartitionRef] = [
            (delta.image.topics_by_id[topic_id], index)
            for topic_id, indexes in delta.partitions.items()
            if topic_id not in deletions
            for index in indexes
        ]
        self._new = {key for key in map(_key, self._refs) if delta.before.partition(*key) is None}
        self._deleted = [topic for topic in delta.deleted_topics.values() if topic.id not in deletions]

    def to_broker(self, broker_id: int) -> list[Message]:
        """Return the requests, in order, to a broker that has the state before the delta."""
        image, controller_id = self._image, self._controller_id
        requests: list[Message] = []
        assigned = _with_replica(self._refs, broker_id)
        if assigned:
            new = [ref for ref in assigned if _key(ref) in self._new]
            requests.append(_leader_and_isr(image, broker_id, controller_id, assigned, new, INCREMENTAL))
        if self._refs or self._deleted or self._delta.brokers:
            requests.append(_update_metadata(image, broker_id, controller_id, self._refs, self._deleted, INCREMENTAL))
        stops = list(self._stops(broker_id))
        if stops:
            requests.append(_stop_replica(image, broker_id, controller_id, stops))
        return requests

    def _stops(self, broker_id: int) -> Iterator[tuple[str, StopReplicaRequest.StopReplicaPartitionState]]:
        state = StopReplicaRequest.StopReplicaPartitionState
        for topic in self._deleted:
            for index, partition in enumerate(topic.partitions):
                if broker_id in partition.replicas:
                    yield topic.name, _to_delete(index)
        in_controlled_shutdown = self._image.brokers[broker_id].in_controlled_shutdown
        for topic, index in self._refs:
            before, after = self._delta.before.partition(topic.id, index), topic.partitions[index]
            if before is None or broker_id not in before.replicas:
                continue
            if broker_id not in after.replicas:
                yield topic.name, state(index, after.leader_epoch, True)
            elif in_controlled_shutdown and broker_id in before.isr and broker_id not in after.isr:
                # Stop the follower, so that the leader does not add it to the ISR again.
                yield topic.name, state(index, after.leader_epoch, False)


def _all_refs(image: ClusterImage) -> list[PartitionRef]:
    return [(topic, index) for topic in image.topics.values() for index in range(len(topic.partitions))]


def _with_replica(refs: Iterable[PartitionRef], broker_id: int) -> list[PartitionRef]:
    """Return the partitions that have a replica on the broker."""
    return [(topic, index) for topic, index in refs if broker_id in topic.partitions[index].replicas]


def _key(ref: PartitionRef) -> tuple[Uuid, int]:
    topic, index = ref
    return topic.id, index


def _by_topic(refs: Iterable[PartitionRef]) -> Iterator[tuple[TopicImage, list[int]]]:
    indexes: dict[bytes, tuple[TopicImage, list[int]]] = {}
    for topic, index in refs:
        indexes.setdefault(topic.id, (topic, []))[1].append(index)
    return iter(indexes.values())


def _leader_and_isr(
    image: ClusterImage,
    broker_id: int,
    controller_id: int,
    refs: list[PartitionRef],
    new: Iterable[PartitionRef],
    kind: int,
) -> LeaderAndIsrRequest:
    new_keys = set(map(_key, new))
    return LeaderAndIsrRequest(
        controller_id=controller_id,
        controller_epoch=image.epoch,
        broker_epoch=image.brokers[broker_id].epoch,
        type=kind,
        topic_states=[
            LeaderAndIsrRequest.LeaderAndIsrTopicState(
                topic.name,
                topic.id,
                [
                    LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                        topic.name,
                        index,
                        image.epoch,
                        partition.leader,
                        partition.leader_epoch,
                        list(partition.isr),
                        partition.partition_epoch,
                        list(partition.replicas),
                        list(partition.adding_replicas),
                        list(partition.removing_replicas),
                        (topic.id, index) in new_keys,
                        partition.leader_recovery_state,
                    )
                    for index in indexes
                    for partition in (topic.partitions[index],)
                ],
            )
            for topic, indexes in _by_topic(refs)
        ],
    )


def _update_metadata(
    image: ClusterImage,
    broker_id: int,
    controller_id: int,
    refs: Iterable[PartitionRef],
    deleted: Iterable[TopicImage],
    kind: int,
) -> UpdateMetadataRequest:
    topics = [
        UpdateMetadataRequest.UpdateMetadataTopicState(
            topic.name, topic.id, [_state(image, index, topic.partitions[index]) for index in indexes]
        )
        for topic, indexes in _by_topic(refs)
    ]
    topics += [
        UpdateMetadataRequest.UpdateMetadataTopicState(
            topic.name,
            topic.id,
            [
                _state(
                    image,
                    index,
                    partition._replace(leader=LEADER_DURING_DELETE, leader_epoch=EPOCH_DURING_DELETE),
                )
                for index, partition in enumerate(topic.partitions)
            ],
        )
        for topic in deleted
    ]
    return UpdateMetadataRequest(
        controller_id=controller_id,
        type=kind,
        controller_epoch=image.epoch,
        broker_epoch=image.brokers[broker_id].epoch,
        topic_states=topics,
        live_brokers=[
            UpdateMetadataRequest.UpdateMetadataBroker(
                broker.id,
                endpoints=[
                    UpdateMetadataRequest.UpdateMetadataEndpoint(e.port, e.host, e.name, e.security_protocol)
                    for e in broker.listeners
                ],
                rack=broker.rack,
            )
            for broker in image.live_brokers()
        ],
    )


def _state(
    image: ClusterImage, index: int, partition: PartitionRegistration
) -> UpdateMetadataRequest.UpdateMetadataPartitionState:
    return UpdateMetadataRequest.UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=image.epoch,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        zk_version=partition.partition_epoch,
        replicas=list(partition.replicas),
        offline_replicas=[replica for replica in partition.replicas if _is_offline(image, partition, replica)],
    )


def _is_offline(image: ClusterImage, partition: PartitionRegistration, replica: int) -> bool:
    """Return whether the replica's broker is not live or its log directory has failed."""
    broker = image.brokers.get(replica)
    return broker is None or broker.fenced or partition.directory(replica) == LOST_DIRECTORY


def _stop_replica(
    image: ClusterImage,
    broker_id: int,
    controller_id: int,
    stops: Iterable[tuple[str, StopReplicaRequest.StopReplicaPartitionState]],
) -> StopReplicaRequest:
    topics: dict[str, StopReplicaRequest.StopReplicaTopicState] = {}
    for name, state in stops:
        topics.setdefault(name, StopReplicaRequest.StopReplicaTopicState(name, [])).partition_states.append(state)
    return StopReplicaRequest(
        controller_id=controller_id,
        controller_epoch=image.epoch,
        broker_epoch=image.brokers[broker_id].epoch,
        topic_states=list(topics.values()),
    )
