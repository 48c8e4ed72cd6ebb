"""The records that a controller appends for the state of the znodes: at the start of its term, and after changes of
other ZooKeeper clients.

Pure. Owns the records for changed brokers, topics, partitions, states, configurations, quotas and credentials. Leaves
reading the znodes to `load` and `znode_readers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from odradek_wire.message import Message
from odradek_wire.messages.client_quota_record import ClientQuotaRecord
from odradek_wire.messages.config_record import ConfigRecord
from odradek_wire.messages.partition_record import PartitionRecord
from odradek_wire.messages.register_broker_record import RegisterBrokerRecord
from odradek_wire.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from odradek_wire.messages.topic_record import TopicRecord
from odradek_wire.messages.unregister_broker import UnregisterBrokerRequest
from odradek_wire.uuid import Uuid

from ..commands.brokers import unfence_broker, unregister_broker
from ..commands.context import CommandContext, Refusal
from ..commands.lost_replicas import forget_lost_replicas
from ..commands.new_partitions import partition_record
from ..commands.policy import election_policy
from ..election import Election, partition_change_record
from ..image import NO_LEADER, BrokerRegistration, ClusterImage, PartitionRegistration, TopicImage
from ..image_records import broker_record
from ..replay import replay
from .config_entities import MECHANISMS, credentials, quota_entity, quotas
from .load import NO_STATE, config_resource
from .paths import desanitized


class PendingRecords:
    """Records to append, and the image after them, from which the next records follow."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.records: list[Message] = []

    def add(self, records: Iterable[Message]) -> None:
        added = list(records)
        if added:
            self.records += added
            self.image = replay(self.image, added).image


def first_records(
    image: ClusterImage, context: CommandContext, restarted_in_sync: Mapping[tuple[str, int], frozenset[int]]
) -> list[Message]:
    """Return the records of a new controller: they remove missing brokers from ISRs, elect leaders, and continue
    reassignments and the creation of partitions.

    `restarted_in_sync` has the ISR members that registered after the state was written. They may have lost records, so
    they leave the ISR if it has other live members. (Kafka's controller does not notice the restart: a restarted leader
    keeps its leader epoch.)
    """
    pending = PendingRecords(image)
    pending.add(_elect_live_leaders(image, context, restarted_in_sync))
    pending.add(first_states(pending.image))
    return pending.records


def _elect_live_leaders(
    image: ClusterImage, context: CommandContext, restarted_in_sync: Mapping[tuple[str, int], frozenset[int]]
) -> Iterator[Message]:
    layers = context.layers(image)
    for topic in image.topics.values():
        policy = election_policy(image, topic.name, layers)
        for index, partition in enumerate(topic.partitions):
            restarted = restarted_in_sync.get((topic.name, index), frozenset())
            live = tuple(replica for replica in partition.isr if image.is_active(replica))
            live = tuple(replica for replica in live if replica not in restarted) or live
            if partition.leader in restarted:
                # If the broker is elected again, it leads in a new epoch.
                partition = partition._replace(leader=NO_LEADER)
            unchanged = partition.leader in live and len(live) == len(partition.isr) and not partition.reassigning
            if unchanged or partition.partition_epoch == NO_STATE:
                continue
            record = partition_change_record(
                topic.id,
                index,
                partition,
                partition._replace(isr=live or partition.isr),
                active=image.is_active,
                election=Election.UNCLEAN if policy.unclean else Election.ONLINE,
                bump_leader_epoch=True,
            )
            if record is not None:
                yield record


def first_states(image: ClusterImage) -> Iterator[PartitionRecord]:
    """Return the first state of each partition that has none and has a live replica."""
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if partition.partition_epoch == NO_STATE:
                record = partition_record(image, topic.id, index, partition.replicas)
                if not isinstance(record, Refusal):
                    record.adding_replicas = list(partition.adding_replicas)
                    record.removing_replicas = list(partition.removing_replicas)
                    yield record


# -- brokers ----------------------------------------------------------------------------------------------------------


def broker_change_records(
    image: ClusterImage, present: Mapping[int, BrokerRegistration], context: CommandContext
) -> list[Message]:
    """Return the records that make the brokers of the image those in `present`. A broker with another epoch has
    restarted.

    As in Kafka new brokers are added first, so that they can be elected.
    """
    pending = PendingRecords(image)
    new = [broker for key, broker in sorted(present.items()) if key not in image.brokers]
    restarted = [
        broker
        for key, broker in sorted(present.items())
        if key in image.brokers and image.brokers[key].epoch != broker.epoch
    ]
    for broker in new:
        _add_broker(pending, broker, context)
    for broker in restarted:
        _remove_broker(pending, broker.id, context)
    for broker in restarted:
        _add_broker(pending, broker, context)
    for broker_id in sorted(image.brokers.keys() - present.keys()):
        _remove_broker(pending, broker_id, context)
    for key, broker in sorted(present.items()):
        known = pending.image.brokers[key]
        if _advertised(known) != _advertised(broker):
            pending.add([_registration(broker, known.in_controlled_shutdown, fenced=False)])
    return pending.records


def _remove_broker(pending: PendingRecords, broker_id: int, context: CommandContext) -> None:
    pending.add(unregister_broker(pending.image, UnregisterBrokerRequest(broker_id), context)[0])
    pending.add(forget_lost_replicas(pending.image, broker_id, context))


def _advertised(broker: BrokerRegistration) -> object:
    return broker.listeners, broker.rack, broker.features


def _add_broker(pending: PendingRecords, broker: BrokerRegistration, context: CommandContext) -> None:
    pending.add([_registration(broker, in_controlled_shutdown=False, fenced=True)])
    pending.add(unfence_broker(pending.image, broker.id, context))
    pending.add(first_states(pending.image))


def _registration(broker: BrokerRegistration, in_controlled_shutdown: bool, fenced: bool) -> RegisterBrokerRecord:
    # ZooKeeper mode has no directory ids.
    return broker_record(
        broker._replace(
            fenced=fenced, in_controlled_shutdown=in_controlled_shutdown, directories=(), cordoned_log_dirs=()
        )
    )


# -- topics -----------------------------------------------------------------------------------------------------------


def new_topic_records(image: ClusterImage, topic: TopicImage) -> list[Message]:
    """Return the records of a topic that another client has created."""
    pending = PendingRecords(image)
    pending.add([TopicRecord(topic.name, topic.id)])
    pending.add(_partition_records(topic.id, enumerate(topic.partitions)))
    pending.add(first_states(pending.image))
    return pending.records


def new_partition_records(
    image: ClusterImage, topic: TopicImage, partitions: tuple[PartitionRegistration, ...]
) -> list[Message]:
    """Return the records of the topic's new partitions. `partitions` has all; the existing ones do not change."""
    pending = PendingRecords(image)
    known = len(topic.partitions)
    pending.add(_partition_records(topic.id, enumerate(partitions[known:], start=known)))
    if pending.records:
        pending.add(first_states(pending.image))
    return pending.records


def state_change_records(topic_id: Uuid, index: int, partition: PartitionRegistration) -> list[Message]:
    """Return the record for a state that a leader without AlterPartition (KIP-497) has written."""
    return list(_partition_records(topic_id, [(index, partition)]))


def _partition_records(
    topic_id: Uuid, partitions: Iterable[tuple[int, PartitionRegistration]]
) -> Iterator[PartitionRecord]:
    for index, partition in partitions:
        yield PartitionRecord(
            index,
            topic_id,
            list(partition.replicas),
            list(partition.isr),
            list(partition.removing_replicas),
            list(partition.adding_replicas),
            partition.leader,
            partition.leader_recovery_state,
            partition.leader_epoch,
            partition.partition_epoch,
            [],
        )


# -- configurations ---------------------------------------------------------------------------------------------------


def config_change_records(image: ClusterImage, entity: str, values: Mapping[str, str]) -> list[Message]:
    """Return the records that give an entity these values: configurations, or quotas and credentials.

    Raises InvalidZnodeError.
    """
    resource = config_resource(entity)
    if resource is None:
        return [*_quotas_changed(image, entity, values), *_credentials_changed(image, entity, values)]
    known = image.configs.get(resource, {})
    return [
        ConfigRecord(resource.type, resource.name, name, values.get(name))
        for name in sorted({*known, *values})
        if known.get(name) != values.get(name)
    ]


def _quotas_changed(image: ClusterImage, entity: str, values: Mapping[str, str]) -> Iterator[ClientQuotaRecord]:
    key = quota_entity(entity)
    old, new = image.security.client_quotas.get(key, {}), quotas(entity, values)
    parts = [ClientQuotaRecord.EntityData(kind, name) for kind, name in key.parts]
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield ClientQuotaRecord(parts, name, new.get(name, 0.0), name not in new)


def _credentials_changed(image: ClusterImage, entity: str, values: Mapping[str, str]) -> Iterator[Message]:
    folder, _, user = entity.partition("/")
    if folder != "users" or "/" in user:
        return
    name = desanitized(user)
    new = {record.mechanism: record for record in credentials(entity, values)}
    for mechanism in MECHANISMS:
        old, record = image.security.scram_credentials.get((name, mechanism)), new.get(mechanism)
        if record is None and old is not None:
            yield RemoveUserScramCredentialRecord(name, mechanism)
        elif record is not None and record != old:
            yield record
