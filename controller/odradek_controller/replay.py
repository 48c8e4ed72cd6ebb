"""Replay of metadata records on an image: the only place where the cluster's metadata changes.

Owns the meaning of every record type of Kafka 3.9 and 4.3. One `replay` copies each changed part of the image once,
however many records it has. Leaves metadata transactions to the stores, which resolve them before they replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from odradek_wire.message import Message
from odradek_wire.messages.abort_transaction_record import AbortTransactionRecord
from odradek_wire.messages.begin_transaction_record import BeginTransactionRecord
from odradek_wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek_wire.messages.clear_elr_record import ClearElrRecord
from odradek_wire.messages.config_record import ConfigRecord
from odradek_wire.messages.end_transaction_record import EndTransactionRecord
from odradek_wire.messages.feature_level_record import FeatureLevelRecord
from odradek_wire.messages.fence_broker_record import FenceBrokerRecord
from odradek_wire.messages.no_op_record import NoOpRecord
from odradek_wire.messages.partition_change_record import PartitionChangeRecord
from odradek_wire.messages.partition_record import PartitionRecord
from odradek_wire.messages.producer_ids_record import ProducerIdsRecord
from odradek_wire.messages.register_broker_record import RegisterBrokerRecord
from odradek_wire.messages.register_controller_record import RegisterControllerRecord
from odradek_wire.messages.remove_topic_record import RemoveTopicRecord
from odradek_wire.messages.topic_record import TopicRecord
from odradek_wire.messages.unfence_broker_record import UnfenceBrokerRecord
from odradek_wire.messages.unregister_broker_record import UnregisterBrokerRecord
from odradek_wire.uuid import Uuid

from .configs.table import Resource
from .image import (
    REPLICA_LISTS,
    BrokerRegistration,
    ClusterImage,
    ConfigResource,
    ControllerRegistration,
    Endpoint,
    FeatureRange,
    MetadataDelta,
    PartitionRegistration,
    TopicImage,
)
from .levels import Levels
from .replay_security import SECURITY_RECORDS


class InvalidMetadataError(Exception):
    """Records that do not fit the image: the metadata log is damaged, or of a later version of Kafka."""


def replay(
    image: ClusterImage, records: Iterable[Message], *, offset: int | None = None, epoch: int | None = None
) -> MetadataDelta:
    """Return the change that the records make; the last of them is at `offset` and was written in `epoch`.

    Raises InvalidMetadataError for a record of an unknown type, or of a topic or broker that does not exist.
    """
    builder = _ImageBuilder(image)
    for record in records:
        try:
            apply = _APPLY[type(record)]
        except KeyError:
            raise InvalidMetadataError(f"{type(record).__name__} is not a metadata record") from None
        apply(builder, record)
    return builder.finish(image.offset if offset is None else offset, image.epoch if epoch is None else epoch)


class _TopicBuilder:
    """A topic, and the indexes of its changed partitions."""

    __slots__ = ("changed", "id", "name", "partitions")

    def __init__(self, topic_id: Uuid, name: str, partitions: Iterable[PartitionRegistration]) -> None:
        self.id = topic_id
        self.name = name
        self.partitions = list(partitions)
        self.changed: set[int] = set()

    def set(self, index: int, partition: PartitionRegistration) -> None:
        self.partitions[index] = partition
        self.changed.add(index)


class _ImageBuilder:
    """An image and its changes; each part is copied before its first change."""

    def __init__(self, image: ClusterImage) -> None:
        self.before = image
        self.brokers: dict[int, BrokerRegistration] | None = None
        self.controllers: dict[int, ControllerRegistration] | None = None
        self.configs: dict[ConfigResource, dict[str, str]] = {}
        self.changed_brokers: set[int] = set()
        self.topics: dict[Uuid, _TopicBuilder] = {}
        self.created_ids: dict[str, Uuid] = {}
        self.deleted: dict[Uuid, TopicImage] = {}
        self.levels: dict[str, int] | None = None
        self.next_producer_id = image.next_producer_id
        self.security = image.security

    # -- the image after the changes so far ---------------------------------------------------------------------------

    def broker(self, broker_id: int, epoch: int) -> BrokerRegistration:
        """Return the registration of this epoch. Raises InvalidMetadataError if there is none."""
        broker = (self.before.brokers if self.brokers is None else self.brokers).get(broker_id)
        if broker is None or broker.epoch != epoch:
            registered = "is not registered" if broker is None else f"is registered with epoch {broker.epoch}"
            raise InvalidMetadataError(f"metadata record of broker {broker_id} epoch {epoch}: the broker {registered}")
        return broker

    def set_broker(self, broker_id: int, broker: BrokerRegistration | None) -> None:
        """Replace the registration, or remove it with None."""
        if self.brokers is None:
            self.brokers = dict(self.before.brokers)
        if broker is None:
            del self.brokers[broker_id]
        else:
            self.brokers[broker_id] = broker
        self.changed_brokers.add(broker_id)

    def topic_id(self, name: str) -> Uuid | None:
        """Return the id of the topic that has this name, None if no topic has it."""
        created = self.created_ids.get(name)
        if created is not None:
            return created
        before = self.before.topics.get(name)
        return None if before is None or before.id in self.deleted else before.id

    def topic_ids(self) -> list[Uuid]:
        """Return the ids of all topics."""
        kept = [key for key in self.before.topics_by_id if key not in self.deleted]
        return [*kept, *self.created_ids.values()]

    def partitions(self, topic_id: Uuid) -> Sequence[PartitionRegistration]:
        """Return the partitions of an existing topic, without a copy."""
        builder = self.topics.get(topic_id)
        return self.before.topics_by_id[topic_id].partitions if builder is None else builder.partitions

    def topic(self, topic_id: Uuid) -> _TopicBuilder:
        """Return a copy of the topic for changes. Raises InvalidMetadataError if the topic does not exist."""
        builder = self.topics.get(topic_id)
        if builder is None:
            topic = self.before.topics_by_id.get(topic_id)
            if topic is None or topic_id in self.deleted:
                raise InvalidMetadataError(f"metadata record of topic {topic_id!r}: the topic does not exist")
            builder = self.topics[topic_id] = _TopicBuilder(topic_id, topic.name, topic.partitions)
        return builder

    def config(self, resource: ConfigResource) -> dict[str, str]:
        """Return a copy of the resource's configuration for changes."""
        configs = self.configs.get(resource)
        if configs is None:
            configs = self.configs[resource] = dict(self.before.configs.get(resource, {}))
        return configs

    # -- the result ---------------------------------------------------------------------------------------------------

    def finish(self, offset: int, epoch: int) -> MetadataDelta:
        before = self.before
        topics, by_id = before.topics, before.topics_by_id
        if self.topics or self.deleted:
            topics, by_id = self._finish_topics()
        configs = before.configs
        if self.configs:
            merged = {**configs, **self.configs}
            configs = {resource: values for resource, values in merged.items() if values}
        image = ClusterImage(
            before.cluster_id,
            offset,
            epoch,
            before.levels if self.levels is None else Levels(self.levels, before.levels.inter_broker_protocol),
            before.brokers if self.brokers is None else self.brokers,
            before.controllers if self.controllers is None else self.controllers,
            topics,
            by_id,
            configs,
            self.next_producer_id,
            self.security,
        )
        return MetadataDelta(
            before=before,
            image=image,
            partitions={key: tuple(sorted(builder.changed)) for key, builder in self.topics.items()},
            deleted_topics=self.deleted,
            brokers=frozenset(self.changed_brokers),
            configs=frozenset(self.configs),
            features=self.levels is not None,
            producer_ids=self.next_producer_id != before.next_producer_id,
            security=self.security is not before.security,
        )

    def _finish_topics(self) -> tuple[dict[str, TopicImage], dict[Uuid, TopicImage]]:
        topics, by_id = dict(self.before.topics), dict(self.before.topics_by_id)
        for topic in self.deleted.values():
            del topics[topic.name], by_id[topic.id]
        for builder in self.topics.values():
            image = TopicImage(builder.id, builder.name, tuple(builder.partitions))
            topics[builder.name] = by_id[builder.id] = image
        return topics, by_id


# -- topics -----------------------------------------------------------------------------------------------------------


def _topic(builder: _ImageBuilder, record: TopicRecord) -> None:
    if builder.topic_id(record.name) is not None:
        raise InvalidMetadataError(f"metadata record creates topic {record.name!r}, which exists")
    builder.created_ids[record.name] = record.topic_id
    builder.topics[record.topic_id] = _TopicBuilder(record.topic_id, record.name, ())


def _partition(builder: _ImageBuilder, record: PartitionRecord) -> None:
    topic = builder.topic(record.topic_id)
    replicas = tuple(record.replicas)
    partition = PartitionRegistration(
        replicas,
        _shared(record.isr, replicas),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        tuple(record.directories),
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
        record.leader_recovery_state,
    )
    if record.partition_id < len(topic.partitions):
        topic.set(record.partition_id, partition)
    elif record.partition_id == len(topic.partitions):
        topic.partitions.append(partition)
        topic.changed.add(record.partition_id)
    else:
        raise InvalidMetadataError(
            f"metadata record creates {topic.name}-{record.partition_id}, expected {topic.name}-{len(topic.partitions)}"
        )


def _shared(values: list[int], known: tuple[int, ...]) -> tuple[int, ...]:
    """Return `known` if it equals the values: an ISR is mostly equal to the replicas, and then shares their tuple."""
    found = tuple(values)
    return known if found == known else found


_NO_LEADER_CHANGE = -2
_NO_RECOVERY_STATE_CHANGE = -1


def _partition_change(builder: _ImageBuilder, record: PartitionChangeRecord) -> None:
    topic = builder.topic(record.topic_id)
    if record.partition_id >= len(topic.partitions):
        raise InvalidMetadataError(
            f"metadata record changes {topic.name}-{record.partition_id}, but the topic has {len(topic.partitions)} "
            "partition(s)"
        )
    topic.set(record.partition_id, changed_partition(topic.partitions[record.partition_id], record))


def changed_partition(partition: PartitionRegistration, record: PartitionChangeRecord) -> PartitionRegistration:
    """Return the partition after this change.

    Each change increments the partition epoch; a record with a leader, even the same one, increments the leader epoch.
    """
    changes: dict[str, object] = {"partition_epoch": partition.partition_epoch + 1}
    for name in REPLICA_LISTS:
        values = getattr(record, name)
        if values is not None:
            changes[name] = tuple(values)
    if record.leader != _NO_LEADER_CHANGE:
        changes["leader"] = record.leader
        changes["leader_epoch"] = partition.leader_epoch + 1
    if record.leader_recovery_state != _NO_RECOVERY_STATE_CHANGE:
        changes["leader_recovery_state"] = record.leader_recovery_state
    return partition._replace(**changes)  # type: ignore[arg-type]  # each value has its field's type


def _remove_topic(builder: _ImageBuilder, record: RemoveTopicRecord) -> None:
    topic = builder.topic(record.topic_id)
    del builder.topics[record.topic_id]
    builder.created_ids.pop(topic.name, None)
    before = builder.before.topics_by_id.get(record.topic_id)
    if before is not None:
        builder.deleted[record.topic_id] = before
    resource = ConfigResource(Resource.TOPIC, topic.name)
    if resource in builder.configs or resource in builder.before.configs:
        builder.config(resource).clear()


def _clear_elr(builder: _ImageBuilder, record: ClearElrRecord) -> None:
    """Clear the eligible leaders of a topic, or of all topics; each cleared partition gets a new epoch, as in Kafka."""
    if record.topic_name:
        named = builder.topic_id(record.topic_name)
        topic_ids = [] if named is None else [named]
    else:
        topic_ids = builder.topic_ids()
    for topic_id in topic_ids:
        for index, partition in enumerate(builder.partitions(topic_id)):
            if partition.eligible_leader_replicas or partition.last_known_elr:
                cleared = PartitionChangeRecord(index, topic_id, eligible_leader_replicas=[], last_known_elr=[])
                builder.topic(topic_id).set(index, changed_partition(partition, cleared))


# -- brokers and controllers ------------------------------------------------------------------------------------------


def _register_broker(builder: _ImageBuilder, record: RegisterBrokerRecord) -> None:
    builder.set_broker(
        record.broker_id,
        BrokerRegistration(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
            tuple(FeatureRange(f.name, f.min_supported_version, f.max_supported_version) for f in record.features),
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            tuple(record.log_dirs),
            tuple(record.cordoned_log_dirs or ()),
            record.is_migrating_zk_broker,
        ),
    )


def _unregister_broker(builder: _ImageBuilder, record: UnregisterBrokerRecord) -> None:
    builder.broker(record.broker_id, record.broker_epoch)
    builder.set_broker(record.broker_id, None)


def _fence_broker(builder: _ImageBuilder, record: FenceBrokerRecord) -> None:
    builder.set_broker(record.id, builder.broker(record.id, record.epoch)._replace(fenced=True))


def _unfence_broker(builder: _ImageBuilder, record: UnfenceBrokerRecord) -> None:
    builder.set_broker(record.id, builder.broker(record.id, record.epoch)._replace(fenced=False))


def _broker_registration_change(builder: _ImageBuilder, record: BrokerRegistrationChangeRecord) -> None:
    broker = builder.broker(record.broker_id, record.broker_epoch)
    if record.fenced:
        broker = broker._replace(fenced=record.fenced == 1)
    if record.in_controlled_shutdown:
        broker = broker._replace(in_controlled_shutdown=record.in_controlled_shutdown == 1)
    if record.log_dirs:
        broker = broker._replace(directories=tuple(record.log_dirs))
    if record.cordoned_log_dirs is not None:
        broker = broker._replace(cordoned_log_dirs=tuple(record.cordoned_log_dirs))
    builder.set_broker(record.broker_id, broker)


def _register_controller(builder: _ImageBuilder, record: RegisterControllerRecord) -> None:
    if builder.controllers is None:
        builder.controllers = dict(builder.before.controllers)
    builder.controllers[record.controller_id] = ControllerRegistration(
        record.controller_id,
        record.incarnation_id,
        record.zk_migration_ready,
        tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points),
        tuple(FeatureRange(f.name, f.min_supported_version, f.max_supported_version) for f in record.features),
    )


# -- configurations, levels, producer ids ------------------------------------------------------------------------------


def _config(builder: _ImageBuilder, record: ConfigRecord) -> None:
    configs = builder.config(ConfigResource(record.resource_type, record.resource_name))
    if record.value is None:
        configs.pop(record.name, None)
    else:
        configs[record.name] = record.value


def _feature_level(builder: _ImageBuilder, record: FeatureLevelRecord) -> None:
    if builder.levels is None:
        builder.levels = dict(builder.before.levels.finalized)
    if record.feature_level == 0:
        builder.levels.pop(record.name, None)
    else:
        builder.levels[record.name] = record.feature_level


def _producer_ids(builder: _ImageBuilder, record: ProducerIdsRecord) -> None:
    builder.next_producer_id = record.next_producer_id


# -- security, and records without state ------------------------------------------------------------------------------


def _security(builder: _ImageBuilder, record: Message) -> None:
    builder.security = SECURITY_RECORDS[type(record)](builder.security, record)


def _stateless(builder: _ImageBuilder, record: Message) -> None:
    """Change nothing."""


_APPLY: dict[type[Message], Callable[..., None]] = {
    RegisterBrokerRecord: _register_broker,
    UnregisterBrokerRecord: _unregister_broker,
    TopicRecord: _topic,
    PartitionRecord: _partition,
    ConfigRecord: _config,
    PartitionChangeRecord: _partition_change,
    FenceBrokerRecord: _fence_broker,
    UnfenceBrokerRecord: _unfence_broker,
    RemoveTopicRecord: _remove_topic,
    FeatureLevelRecord: _feature_level,
    ProducerIdsRecord: _producer_ids,
    BrokerRegistrationChangeRecord: _broker_registration_change,
    NoOpRecord: _stateless,
    BeginTransactionRecord: _stateless,
    EndTransactionRecord: _stateless,
    AbortTransactionRecord: _stateless,
    RegisterControllerRecord: _register_controller,
    ClearElrRecord: _clear_elr,
    **dict.fromkeys(SECURITY_RECORDS, _security),
}

RECORD_TYPES: dict[int, type[Message]] = {record.API_KEY: record for record in _APPLY}
"""The class of each metadata record by its type number."""
