"""Translate the control requests of ZooKeeper mode into metadata deltas.

Owns this broker's image, the replicas that the controller has assigned to this broker, and the checks of the three
epochs that fence outdated requests: controller, broker and leader epoch. UpdateMetadata has the state of every
partition for clients; only LeaderAndIsr and StopReplica change the replicas of this broker. Pure: it neither reads nor
sends. Leaves the order of requests to `control_requests`. Sources: ReplicaManager, ZkMetadataCache and KafkaApis of
Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

from odradek_controller.configs.table import Resource
from odradek_controller.image import (
    LOST_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    ClusterImage,
    ConfigResource,
    Endpoint,
    MetadataDelta,
    PartitionRegistration,
    ReplicaAction,
    TopicImage,
)
from odradek_controller.replay import replay
from odradek_controller.zookeeper.json_text import InvalidZnodeError
from odradek_controller.zookeeper.reconciling import config_change_records
from odradek_controller.zookeeper.znodes import PROTOCOLS, TopicPartition
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek_wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek_wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from odradek_wire.uuid import ZERO_UUID, Uuid

FULL = 2
"""The type of a request that names all partitions (AbstractControlRequest.Type). Kafka's controller never sends it in
ZooKeeper mode."""
LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2
_NO_EPOCH = -1

_UNKNOWN = PartitionRegistration((), (), NO_LEADER, -1, -1)
"""A partition that no request has named yet, while a request has named one with a higher number."""

Response = TypeVar("Response")


class Outcome(NamedTuple, Generic[Response]):
    """A response, and the delta to apply before the broker sends it; None if nothing changes."""

    delta: MetadataDelta | None
    response: Response


class AssignedReplica(NamedTuple):
    """A replica that the controller has assigned to this broker."""

    topic_id: Uuid
    leader_epoch: int
    stopped: bool = False
    """Whether a StopReplica request has stopped it since the last LeaderAndIsr request."""


class ControlRequestAdapter:
    """Translates the controller's requests, and changed znodes, into deltas. Call it in the order of the requests."""

    def __init__(self, image: ClusterImage, broker_id: int) -> None:
        """`image` has the cluster id, the levels and the configurations."""
        self.image = image
        self.broker_id = broker_id
        self.controller_epoch = 0
        self._assigned: dict[TopicPartition, AssignedReplica] = {}
        self._complete = False

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 before the broker registers."""
        registration = self.image.brokers.get(self.broker_id)
        return -1 if registration is None else registration.epoch

    def registered(self, registration: BrokerRegistration) -> MetadataDelta:
        """Return the delta of this broker's registration. The broker is fenced until an UpdateMetadata request names
        it as live."""
        known = self.image.brokers.get(self.broker_id)
        fenced = known is None or known.fenced
        brokers = {**self.image.brokers, self.broker_id: registration._replace(fenced=fenced)}
        return self._advance(replace(self.image, brokers=brokers), brokers=frozenset({self.broker_id}))

    def configs_changed(self, configs: Mapping[ConfigResource, Mapping[str, str]]) -> MetadataDelta:
        """Return the delta of these changed configurations."""
        return self._advance(self._with_configs(configs), configs=frozenset(configs))

    def entities_changed(
        self, entities: Mapping[str, Mapping[str, str]]
    ) -> tuple[MetadataDelta | None, list[InvalidZnodeError]]:
        """Return the delta of the quotas and credentials, or None if nothing has changed, and the errors of entities
        with values that cannot be read; these entities do not change."""
        damaged, records = [], []
        for entity, values in entities.items():
            try:
                records += config_change_records(self.image, entity, values)
            except InvalidZnodeError as error:
                damaged.append(error)
        if not records:
            return None, damaged
        security = replay(self.image, records, offset=self.image.offset).image.security
        return self._advance(replace(self.image, security=security), security=True), damaged

    def unknown_topics(self, request: LeaderAndIsrRequest | UpdateMetadataRequest) -> list[str]:
        """Return the topics that no earlier request has named. The broker reads their configurations first."""
        topics = self.image.topics
        return [
            topic.topic_name
            for topic in request.topic_states
            if (known := topics.get(topic.topic_name)) is None or known.id != topic.topic_id
        ]

    # -- LeaderAndIsr -------------------------------------------------------------------------------------------------

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> Outcome[LeaderAndIsrResponse]:
        error = self.epoch_error(request)
        if error:
            return Outcome(None, LeaderAndIsrResponse(error_code=error))
        response = LeaderAndIsrResponse()
        by_topic: dict[Uuid, LeaderAndIsrResponse.LeaderAndIsrTopicError] = {}
        builder = _TopicsBuilder(self.image)
        named = set()
        for name, request_id, state in _leader_and_isr_states(request):
            named.add((name, state.partition_index))
            error = self._assign(builder, name, self._topic_id(name, request_id), state)
            result = LeaderAndIsrResponse.LeaderAndIsrPartitionError(name, state.partition_index, error)
            # Before version 5 the response has one list of partitions, later one for each topic.
            response.partition_errors.append(result)
            topic = by_topic.get(request_id)
            if topic is None:
                topic = by_topic[request_id] = LeaderAndIsrResponse.LeaderAndIsrTopicError(request_id)
                response.topics.append(topic)
            topic.partition_errors.append(result)
        replica_actions: dict[TopicPartition, ReplicaAction] = {}
        if request.type == FULL:
            self._complete = True
            replica_actions = dict.fromkeys(sorted(self._assigned.keys() - named), ReplicaAction.MARK_STRAY)
            for key in replica_actions:
                del self._assigned[key]
        image = replace(self.image, epoch=request.controller_epoch, controller_id=request.controller_id)
        return Outcome(self._advance(builder.in_image(image), builder, replica_actions=replica_actions), response)

    def _assign(
        self, builder: _TopicsBuilder, name: str, topic_id: Uuid, state: LeaderAndIsrRequest.LeaderAndIsrPartitionState
    ) -> ErrorCode:
        """Assign a replica to this broker, unless the request is wrong or outdated; return its error."""
        key = (name, state.partition_index)
        assigned = self._assigned.get(key)
        if topic_id == ZERO_UUID:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if assigned is not None and assigned.topic_id != topic_id:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if assigned is not None and state.leader_epoch < assigned.leader_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if self.broker_id not in state.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self._assigned[key] = AssignedReplica(topic_id, state.leader_epoch)
        partition, known = _assigned_partition(state), builder.get(topic_id, state.partition_index)
        if known is not None and known.replicas == partition.replicas:
            partition = partition._replace(directories=known.directories)
        builder.put(name, topic_id, state.partition_index, partition)
        builder.changed.setdefault(topic_id, set()).add(state.partition_index)
        return ErrorCode.NONE

    # -- UpdateMetadata -----------------------------------------------------------------------------------------------

    def update_metadata(self, request: UpdateMetadataRequest) -> Outcome[UpdateMetadataResponse]:
        error = self.epoch_error(request)
        if error:
            return Outcome(None, UpdateMetadataResponse(error_code=error))
        builder = _TopicsBuilder(self.image)
        named = set()
        live = {broker.id for broker in request.live_brokers}
        for name, request_id, state in _update_metadata_states(request):
            topic_id = self._topic_id(name, request_id)
            if topic_id == ZERO_UUID:
                continue  # An older controller does not know topic ids, and a replica needs one.
            named.add(topic_id)
            if state.leader == LEADER_DURING_DELETE:
                builder.delete(topic_id)
            else:
                self._update_partition(builder, name, topic_id, state, live)
        replica_actions: dict[TopicPartition, ReplicaAction] = {}
        if request.type == FULL:
            for topic_id in sorted(self.image.topics_by_id.keys() - named):
                builder.delete(topic_id)
                replica_actions.update(
                    (key, ReplicaAction.MARK_STRAY)
                    for key, assigned in sorted(self._assigned.items())
                    if assigned.topic_id == topic_id
                )
        self._assigned = {
            key: assigned for key, assigned in self._assigned.items() if assigned.topic_id not in builder.deleted
        }
        brokers = self._brokers(request)
        image = builder.in_image(
            replace(self.image, epoch=request.controller_epoch, controller_id=request.controller_id, brokers=brokers)
        )
        before = self.image.brokers
        changed = frozenset(key for key in before.keys() | brokers.keys() if before.get(key) != brokers.get(key))
        return Outcome(
            self._advance(image, builder, brokers=changed, replica_actions=replica_actions), UpdateMetadataResponse()
        )

    def _update_partition(
        self,
        builder: _TopicsBuilder,
        name: str,
        topic_id: Uuid,
        state: UpdateMetadataRequest.UpdateMetadataPartitionState,
        live: Container[int],
    ) -> None:
        """Set the state that clients see, unless the known one is newer."""
        index = state.partition_index
        known = builder.get(topic_id, index)
        if known is not None and (state.leader_epoch, state.zk_version) < (known.leader_epoch, known.partition_epoch):
            return
        replicas, isr = tuple(state.replicas), tuple(state.isr)
        # An offline replica of a live broker is in a failed log directory.
        lost = {replica for replica in state.offline_replicas if replica in live}
        updated = PartitionRegistration(
            replicas,
            replicas if isr == replicas else isr,
            state.leader,
            state.leader_epoch,
            state.zk_version,
            tuple(LOST_DIRECTORY if each in lost else UNASSIGNED_DIRECTORY for each in replicas) if lost else (),
        )
        if known is not None and known.replicas == replicas:
            updated = updated._replace(adding_replicas=known.adding_replicas, removing_replicas=known.removing_replicas)
        builder.put(name, topic_id, index, updated)
        assigned = self._assigned.get((name, index))
        if (
            assigned == AssignedReplica(topic_id, state.leader_epoch)
            and self.broker_id in replicas
            and updated != known
        ):
            # After an AlterPartition request the leader epoch is the same, and only UpdateMetadata has the new ISR.
            builder.changed.setdefault(topic_id, set()).add(index)

    def _brokers(self, request: UpdateMetadataRequest) -> dict[int, BrokerRegistration]:
        brokers = {}
        for live in request.live_brokers:
            listeners = tuple(
                Endpoint(e.listener or PROTOCOLS[e.security_protocol], e.host, e.port, e.security_protocol)
                for e in live.endpoints
            ) or (Endpoint(PROTOCOLS[0], live.v0_host, live.v0_port),)
            # The request has no epochs of brokers. The controller checks those of other brokers.
            epoch = self.broker_epoch if live.id == self.broker_id else -1
            brokers[live.id] = BrokerRegistration(live.id, epoch, ZERO_UUID, listeners, (), live.rack, fenced=False)
        own = self.image.brokers.get(self.broker_id)
        if own is not None and self.broker_id not in brokers:
            brokers[self.broker_id] = own._replace(fenced=True)
        return brokers

    # -- StopReplica --------------------------------------------------------------------------------------------------

    def stop_replica(self, request: StopReplicaRequest) -> Outcome[StopReplicaResponse]:
        error = self.epoch_error(request)
        if error:
            return Outcome(None, StopReplicaResponse(error_code=error))
        response = StopReplicaResponse()
        replica_actions: dict[TopicPartition, ReplicaAction] = {}
        for stop in _stops(request):
            key = (stop.topic, stop.partition)
            assigned = self._assigned.get(key)
            error = ErrorCode.NONE
            if assigned is not None and 0 <= stop.leader_epoch < assigned.leader_epoch:
                error = ErrorCode.FENCED_LEADER_EPOCH
            elif stop.delete:
                # An unassigned replica, too: the topic may have been deleted while this broker was down.
                replica_actions[key] = ReplicaAction.DELETE
                self._assigned.pop(key, None)
            elif assigned is not None:
                replica_actions[key] = ReplicaAction.STOP
                self._assigned[key] = assigned._replace(stopped=True)
            response.partition_errors.append(
                StopReplicaResponse.StopReplicaPartitionError(stop.topic, stop.partition, error)
            )
        image = replace(self.image, epoch=request.controller_epoch)
        return Outcome(self._advance(image, replica_actions=replica_actions), response)

    # -- all requests -------------------------------------------------------------------------------------------------

    def epoch_error(self, request: LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest) -> ErrorCode:
        """Return the error of a request of an outdated epoch; otherwise NONE, and record the controller epoch."""
        if request.broker_epoch != _NO_EPOCH and request.broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if request.controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = request.controller_epoch
        return ErrorCode.NONE

    def _topic_id(self, name: str, request_id: Uuid) -> Uuid:
        """Return the topic id of the request; if its version has none, that of the known topic of this name."""
        known = self.image.topics.get(name)
        return request_id if request_id != ZERO_UUID or known is None else known.id

    def _advance(
        self,
        image: ClusterImage,
        topics: _TopicsBuilder | None = None,
        *,
        brokers: frozenset[int] = frozenset(),
        configs: frozenset[ConfigResource] = frozenset(),
        replica_actions: Mapping[TopicPartition, ReplicaAction] | None = None,
        security: bool = False,
    ) -> MetadataDelta:
        before, self.image = self.image, image
        return MetadataDelta(
            before=before,
            image=image,
            partitions={} if topics is None else topics.changed_partitions(),
            deleted_topics={} if topics is None else topics.deleted,
            brokers=brokers,
            configs=configs,
            replica_actions=replica_actions or {},
            complete=self._complete,
            security=security,
        )

    def _with_configs(self, configs: Mapping[ConfigResource, Mapping[str, str]]) -> ClusterImage:
        merged = {**self.image.configs, **configs}
        return replace(self.image, configs={key: values for key, values in merged.items() if values})


class _TopicsBuilder:
    """The topics of an image with the changes of one request. Unchanged topics are not copied."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._names: dict[Uuid, str] = {}
        self._partitions: dict[Uuid, list[PartitionRegistration]] = {}
        self.changed: dict[Uuid, set[int]] = {}
        """The partitions to apply to this broker's replicas."""
        self.deleted: dict[Uuid, TopicImage] = {}

    def get(self, topic_id: Uuid, index: int) -> PartitionRegistration | None:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            return self._image.partition(topic_id, index)
        return partitions[index] if index < len(partitions) else None

    def put(self, name: str, topic_id: Uuid, index: int, partition: PartitionRegistration) -> None:
        """Set the partition, unless the known state is newer."""
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            known = self._image.topics_by_id.get(topic_id)
            partitions = self._partitions[topic_id] = [] if known is None else list(known.partitions)
            self._names[topic_id] = name
            previous = self._image.topics.get(name)
            if previous is not None and previous.id != topic_id:
                self.delete(previous.id)
        while len(partitions) <= index:
            partitions.append(_UNKNOWN)
        known_epochs = (partitions[index].leader_epoch, partitions[index].partition_epoch)
        if (partition.leader_epoch, partition.partition_epoch) >= known_epochs:
            partitions[index] = partition

    def delete(self, topic_id: Uuid) -> None:
        self._partitions.pop(topic_id, None)
        self.changed.pop(topic_id, None)
        known = self._image.topics_by_id.get(topic_id)
        if known is not None:
            self.deleted[topic_id] = known

    def changed_partitions(self) -> dict[Uuid, tuple[int, ...]]:
        return {topic_id: tuple(sorted(indexes)) for topic_id, indexes in self.changed.items()}

    def in_image(self, image: ClusterImage) -> ClusterImage:
        if not self._partitions and not self.deleted:
            return image
        topics, by_id = dict(image.topics), dict(image.topics_by_id)
        for topic in self.deleted.values():
            del topics[topic.name], by_id[topic.id]
        for topic_id, partitions in self._partitions.items():
            topic = TopicImage(topic_id, self._names[topic_id], tuple(partitions))
            topics[topic.name] = by_id[topic_id] = topic
        configs = image.configs
        deleted = {
            ConfigResource(Resource.TOPIC, topic.name) for topic in self.deleted.values() if topic.name not in topics
        }
        if not deleted.isdisjoint(configs):
            configs = {key: values for key, values in configs.items() if key not in deleted}
        return replace(image, topics=topics, topics_by_id=by_id, configs=configs)


# -- the older forms of the requests ----------------------------------------------------------------------------------


def _assigned_partition(state: LeaderAndIsrRequest.LeaderAndIsrPartitionState) -> PartitionRegistration:
    replicas, isr = tuple(state.replicas), tuple(state.isr)
    return PartitionRegistration(
        replicas,
        replicas if isr == replicas else isr,
        state.leader,
        state.leader_epoch,
        state.partition_epoch,
        removing_replicas=tuple(state.removing_replicas),
        adding_replicas=tuple(state.adding_replicas),
        leader_recovery_state=state.leader_recovery_state,
    )


def _leader_and_isr_states(
    request: LeaderAndIsrRequest,
) -> Iterator[tuple[str, Uuid, LeaderAndIsrRequest.LeaderAndIsrPartitionState]]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, Uuid(topic.topic_id), state
    for state in request.ungrouped_partition_states:
        yield state.topic_name, ZERO_UUID, state


def _update_metadata_states(
    request: UpdateMetadataRequest,
) -> Iterator[tuple[str, Uuid, UpdateMetadataRequest.UpdateMetadataPartitionState]]:
    for topic in request.topic_states:
        for state in topic.partition_states:
            yield topic.topic_name, Uuid(topic.topic_id), state
    for state in request.ungrouped_partition_states:
        yield state.topic_name, ZERO_UUID, state


class _Stop(NamedTuple):
    topic: str
    partition: int
    leader_epoch: int
    delete: bool


def _stops(request: StopReplicaRequest) -> Iterator[_Stop]:
    """Return the partitions to stop, from any of the three forms of the request."""
    for state in request.topic_states:
        for each in state.partition_states:
            yield _Stop(state.topic_name, each.partition_index, each.leader_epoch, each.delete_partition)
    for topic in request.topics:
        for index in topic.partition_indexes:
            yield _Stop(topic.name, index, _NO_EPOCH, request.delete_partitions)
    for old in request.ungrouped_partitions:
        yield _Stop(old.topic_name, old.partition_index, _NO_EPOCH, request.delete_partitions)
