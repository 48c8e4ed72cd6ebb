"""Registration, fencing, controlled shutdown and unregistration of brokers, with the changes of their partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from odradek_wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from odradek_wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek_wire.messages.register_broker_record import RegisterBrokerRecord
from odradek_wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from odradek_wire.messages.unregister_broker_record import UnregisterBrokerRecord
from odradek_wire.uuid import Uuid

from ..election import Election, IsActive, partition_change_record, without_broker
from ..image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    NO_LEADER,
    UNASSIGNED_DIRECTORY,
    ClusterImage,
    PartitionRegistration,
)
from .context import CommandContext
from .policy import ElectionPolicy, election_policy

_RESERVED_DIRECTORIES = frozenset((UNASSIGNED_DIRECTORY, LOST_DIRECTORY, MIGRATING_DIRECTORY))


def register_broker(
    image: ClusterImage, request: BrokerRegistrationRequest, context: CommandContext
) -> tuple[list[Message], BrokerRegistrationResponse]:
    """Register a broker, fenced. Its epoch is the offset of its registration record, the first of the records.

    Kafka refuses the registration until the session of the previous incarnation has expired. Here brokers run in the
    controller's process, so the previous incarnation has ended and leads nothing.

    A clean shutdown writes the broker's epoch to its log directories. A broker that does not send that epoch may have
    lost records: it leaves every ISR and the eligible leaders until it has caught up (KIP-966).
    """
    error = _registration_error(image, request)
    if error is not ErrorCode.NONE:
        return [], BrokerRegistrationResponse(error_code=error)
    known = image.brokers.get(request.broker_id)
    same_incarnation = known is not None and known.incarnation_id == request.incarnation_id
    record = RegisterBrokerRecord(
        request.broker_id,
        request.is_migrating_zk_broker,
        request.incarnation_id,
        context.next_offset,
        [RegisterBrokerRecord.BrokerEndpoint(e.name, e.host, e.port, e.security_protocol) for e in request.listeners],
        [
            RegisterBrokerRecord.BrokerFeature(f.name, f.min_supported_version, f.max_supported_version)
            for f in request.features
        ],
        request.rack,
        True,
        False,
        sorted(request.log_dirs),
    )
    records: list[Message] = [record]
    after_clean_shutdown = known is not None and request.previous_broker_epoch == known.epoch
    if not same_incarnation and image.levels.elr_enabled and not after_clean_shutdown:
        records += _remove_from_partitions(image, request.broker_id, context, after_unclean_shutdown=True)
    elif known is not None and not known.fenced and not same_incarnation:
        records += _remove_from_partitions(image, request.broker_id, context)
    return records, BrokerRegistrationResponse(broker_epoch=context.next_offset)


def _registration_error(image: ClusterImage, request: BrokerRegistrationRequest) -> ErrorCode:
    if request.cluster_id != image.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    dirs = request.log_dirs
    if len(set(dirs)) != len(dirs) or _RESERVED_DIRECTORIES & set(dirs):
        return ErrorCode.INVALID_REQUEST
    others = {key for broker in image.brokers.values() if broker.id != request.broker_id for key in broker.directories}
    if others & set(dirs):
        return ErrorCode.INVALID_REQUEST
    supported = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
    for name, level in image.levels.finalized.items():
        low, high = supported.get(name, (0, 0))
        if not low <= level <= high:
            return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def broker_heartbeat(
    image: ClusterImage, request: BrokerHeartbeatRequest, context: CommandContext
) -> tuple[list[Message], BrokerHeartbeatResponse]:
    """Unfence the broker, fence it, or start its controlled shutdown, as it wants (Kafka's BrokerHeartbeatManager)."""
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        return [], BrokerHeartbeatResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    if broker.epoch != request.broker_epoch:
        return [], BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    if request.want_shut_down:
        records = controlled_shutdown(image, broker.id, context)
    elif request.want_fence:
        records = fence_broker(image, broker.id, context)
    else:
        records = unfence_broker(image, broker.id, context)
    return records, BrokerHeartbeatResponse(
        is_caught_up=True, is_fenced=request.want_fence, should_shut_down=request.want_shut_down
    )


def unfence_broker(image: ClusterImage, broker_id: int, context: CommandContext) -> list[Message]:
    """Unfence the broker, and elect it leader of the partitions without a leader that it can lead."""
    broker = image.brokers.get(broker_id)
    if broker is None or not broker.fenced:
        return []
    records: list[Message] = [BrokerRegistrationChangeRecord(broker_id, broker.epoch, -1)]

    def active(replica: int) -> bool:
        return replica == broker_id or image.is_active(replica)

    return [*records, *_elect_leaderless(image, _replicas_of(image, broker_id), active, context)]


def elect_leaderless(image: ClusterImage, context: CommandContext) -> list[Message]:
    """Elect leaders of partitions without a leader, after a change of the configuration."""
    partitions = (
        (topic.id, index, partition)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
    )
    return list(_elect_leaderless(image, partitions, image.is_active, context))


def _elect_leaderless(
    image: ClusterImage,
    partitions: Iterable[tuple[Uuid, int, PartitionRegistration]],
    active: IsActive,
    context: CommandContext,
) -> Iterator[Message]:
    policies = _Policies(image, context)
    for topic_id, index, partition in partitions:
        # In ZooKeeper mode a partition has the epoch -1 until `first_states` writes its first state.
        if partition.leader == NO_LEADER and partition.partition_epoch >= 0:
            policy = policies.of(topic_id)
            record = partition_change_record(
                topic_id,
                index,
                partition,
                active=active,
                election=Election.UNCLEAN if policy.unclean else Election.ONLINE,
                elr_enabled=image.levels.elr_enabled,
                min_isr=policy.min_isr,
                bump_leader_epoch=image.levels.bumps_leader_epoch,
            )
            if record is not None:
                yield record


def fence_broker(image: ClusterImage, broker_id: int, context: CommandContext) -> list[Message]:
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return []
    return [
        BrokerRegistrationChangeRecord(broker_id, broker.epoch, 1),
        *_remove_from_partitions(image, broker_id, context),
    ]


def controlled_shutdown(image: ClusterImage, broker_id: int, context: CommandContext) -> list[Message]:
    """Start a controlled shutdown: the broker leaves the ISR of each partition that has another in-sync replica."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced or broker.in_controlled_shutdown:
        return []
    records: list[Message] = [BrokerRegistrationChangeRecord(broker_id, broker.epoch, 0, 1)]
    policies = _Policies(image, context)
    for topic_id, index, partition in _replicas_of(image, broker_id):
        others = tuple(replica for replica in partition.isr if replica != broker_id)
        if others:
            record = partition_change_record(
                topic_id,
                index,
                partition,
                partition._replace(isr=others),
                active=_active_except(image, broker_id),
                elr_enabled=image.levels.elr_enabled,
                min_isr=policies.of(topic_id).min_isr,
                bump_leader_epoch=image.levels.bumps_leader_epoch,
            )
            if record is not None:
                records.append(record)
    return records


def unregister_broker(
    image: ClusterImage, request: UnregisterBrokerRequest, context: CommandContext
) -> tuple[list[Message], UnregisterBrokerResponse]:
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        message = f"Broker ID {request.broker_id} is not currently registered"
        return [], UnregisterBrokerResponse(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, error_message=message)
    return [
        *_remove_from_partitions(image, request.broker_id, context),
        UnregisterBrokerRecord(request.broker_id, broker.epoch),
    ], UnregisterBrokerResponse()


def _active_except(image: ClusterImage, broker_id: int) -> Callable[[int], bool]:
    return lambda replica: replica != broker_id and image.is_active(replica)


class _Policies:
    """A cache of the topics' election policies."""

    def __init__(self, image: ClusterImage, context: CommandContext) -> None:
        self._image = image
        self._layers = context.layers(image)
        self._known: dict[Uuid, ElectionPolicy] = {}

    def of(self, topic_id: Uuid) -> ElectionPolicy:
        policy = self._known.get(topic_id)
        if policy is None:
            topic = self._image.topics_by_id[topic_id]
            policy = self._known[topic_id] = election_policy(self._image, topic.name, self._layers)
        return policy


def _remove_from_partitions(
    image: ClusterImage, broker_id: int, context: CommandContext, *, after_unclean_shutdown: bool = False
) -> Iterator[Message]:
    """Return the changes of the broker's partitions when the broker is no longer active."""
    policies = _Policies(image, context)
    for topic_id, index, partition in _replicas_of(image, broker_id):
        policy = policies.of(topic_id)
        record = without_broker(
            topic_id,
            index,
            partition,
            broker_id,
            active=image.is_active,
            unclean=policy.unclean,
            elr_enabled=image.levels.elr_enabled,
            min_isr=policy.min_isr,
            bump_leader_epoch=image.levels.bumps_leader_epoch,
            after_unclean_shutdown=after_unclean_shutdown,
        )
        if record is not None:
            yield record


def _replicas_of(image: ClusterImage, broker_id: int) -> Iterator[tuple[Uuid, int, PartitionRegistration]]:
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if broker_id in partition.replicas:
                yield topic.id, index, partition
