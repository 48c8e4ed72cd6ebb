"""The records of a snapshot, from an image.

The inverse of `replay`: these records, replayed on an empty image, make the same image except for offset and epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from odradek_wire.message import Message
from odradek_wire.messages.client_quota_record import ClientQuotaRecord
from odradek_wire.messages.config_record import ConfigRecord
from odradek_wire.messages.feature_level_record import FeatureLevelRecord
from odradek_wire.messages.partition_record import PartitionRecord
from odradek_wire.messages.producer_ids_record import ProducerIdsRecord
from odradek_wire.messages.register_broker_record import RegisterBrokerRecord
from odradek_wire.messages.register_controller_record import RegisterControllerRecord
from odradek_wire.messages.topic_record import TopicRecord
from odradek_wire.messages.zk_migration_state_record import ZkMigrationStateRecord

from .image import BrokerRegistration, ClusterImage, ControllerRegistration, QuotaEntity, TopicImage
from .levels import METADATA_VERSION, Levels


def image_records(image: ClusterImage) -> Iterator[Message]:
    """Return the records of the image, features first: they decide the versions of the others."""
    yield from feature_records(image.levels)
    for controller in image.controllers.values():
        yield _controller(controller)
    for broker in image.brokers.values():
        yield broker_record(broker)
    for topic in image.topics.values():
        yield from _topic(topic)
    for resource, configs in image.configs.items():
        for name, value in configs.items():
            yield ConfigRecord(resource.type, resource.name, name, value)
    if image.next_producer_id:
        yield ProducerIdsRecord(next_producer_id=image.next_producer_id)
    security = image.security
    if security.zk_migration_state is not None:
        yield ZkMigrationStateRecord(security.zk_migration_state)
    for entity, limits in security.client_quotas.items():
        yield from _quotas(entity, limits)
    for mapping in (security.scram_credentials, security.delegation_tokens, security.acls):
        yield from mapping.values()


def feature_records(levels: Levels) -> Iterator[FeatureLevelRecord]:
    """Return the records of the finalized features, `metadata.version` first."""
    for name, level in sorted(levels.finalized.items(), key=lambda item: (item[0] != METADATA_VERSION, item[0])):
        yield FeatureLevelRecord(name, level)


def _controller(controller: ControllerRegistration) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller.id,
        controller.incarnation_id,
        controller.zk_migration_ready,
        [RegisterControllerRecord.ControllerEndpoint(*endpoint) for endpoint in controller.listeners],
        [RegisterControllerRecord.ControllerFeature(*feature) for feature in controller.features],
    )


def broker_record(broker: BrokerRegistration) -> RegisterBrokerRecord:
    """Return the registration as one record."""
    return RegisterBrokerRecord(
        broker.id,
        broker.is_migrating_zk_broker,
        broker.incarnation_id,
        broker.epoch,
        [RegisterBrokerRecord.BrokerEndpoint(*endpoint) for endpoint in broker.listeners],
        [RegisterBrokerRecord.BrokerFeature(*feature) for feature in broker.features],
        broker.rack,
        broker.fenced,
        broker.in_controlled_shutdown,
        list(broker.directories),
        list(broker.cordoned_log_dirs) or None,
    )


def _topic(topic: TopicImage) -> Iterator[Message]:
    yield TopicRecord(topic.name, topic.id)
    for index, partition in enumerate(topic.partitions):
        yield PartitionRecord(
            index,
            topic.id,
            list(partition.replicas),
            list(partition.isr),
            list(partition.removing_replicas),
            list(partition.adding_replicas),
            partition.leader,
            partition.leader_recovery_state,
            partition.leader_epoch,
            partition.partition_epoch,
            list(partition.directories),
            list(partition.eligible_leader_replicas) or None,
            list(partition.last_known_elr) or None,
        )


def _quotas(entity: QuotaEntity, limits: Mapping[str, float]) -> Iterator[ClientQuotaRecord]:
    for key, value in limits.items():
        parts = [ClientQuotaRecord.EntityData(kind, name) for kind, name in entity.parts]
        yield ClientQuotaRecord(parts, key, value, False)
