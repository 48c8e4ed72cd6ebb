"""Read a cluster from ZooKeeper into an image, as a controller does after its election.

Owns the mapping from znodes to the image, and the reads of single znodes for `znode_readers`. A broker epoch is the
czxid of the broker's znode; a partition epoch is the version of the znode with the partition's state. `ZnodeCache` has
the versions that the image does not have. Leaves the formats of znodes to `znodes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple, TypeVar

from odradek_wire.messages.user_scram_credential_record import UserScramCredentialRecord
from odradek_wire.uuid import ZERO_UUID

from ..configs.table import Resource
from ..image import (
    NO_LEADER,
    BrokerRegistration,
    ClusterImage,
    ConfigResource,
    PartitionRegistration,
    QuotaEntity,
    SecurityImage,
    TopicImage,
)
from ..levels import Emulation, Levels
from . import paths
from .client import NoNodeError, Watch, ZooKeeper
from .config_entities import credentials, is_quota_entity, quota_entity, quotas
from .json_text import InvalidZnodeError
from .znodes import (
    Assignment,
    BrokerZnode,
    PartitionState,
    ProducerIdBlock,
    TopicPartition,
    TopicZnode,
    decode_cluster_id,
    decode_config,
    decode_features,
)

Item = TypeVar("Item")
Found = TypeVar("Found")

_MAX_CONCURRENT_READS = 500
"""The maximum number of znodes that `read_each` reads concurrently."""

NO_STATE = -1
"""The partition epoch of a partition that has replicas, and no state until the controller writes the first one."""


@dataclass(slots=True)
class ZnodeCache:
    """The facts about znodes that the store needs and the image does not have."""

    topic_versions: dict[str, int] = field(default_factory=dict)
    """Topic name to the version of its znode."""
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Entity path to its values (configurations, quotas, credentials), for every entity that has a znode."""
    users_with_clients: set[str] = field(default_factory=set)
    """Entity paths of users that have a znode for their clients."""
    deletion_requested: set[str] = field(default_factory=set)
    """Topics named in `/admin/delete_topics`."""
    unreadable: set[str] = field(default_factory=set)
    """Topics that the image does not have, because one of their znodes cannot be read."""
    producer_ids_version: int = 0
    """The version of `/latest_producer_id_block`."""
    restarted_in_sync: dict[TopicPartition, frozenset[int]] = field(default_factory=dict)
    """ISR members that registered after the state was written: brokers that restarted while there was no controller."""


class LoadedCluster(NamedTuple):
    """The result of `load`."""

    image: ClusterImage
    znode_cache: ZnodeCache
    without_id: Mapping[str, TopicZnode]
    """Topics without a topic id. The store gives them ids and adds them to the image."""
    damaged: tuple[InvalidZnodeError, ...]
    """The errors of znodes that cannot be read; the image lacks their topics and brokers."""


async def load(zk: ZooKeeper, epoch: int) -> LoadedCluster:
    """Read the whole cluster.

    Raises the errors of `ZooKeeper`, and InvalidZnodeError for the features, the cluster id or the producer ids.
    """
    cache = ZnodeCache()
    damaged: list[InvalidZnodeError] = []
    features = await read_features(zk)
    brokers = {
        broker.id: broker
        for broker in await read_each(zk, damaged, await children(zk, paths.BROKER_IDS), _read_listed_broker)
        if broker is not None
    }
    found = [topic for topic in await read_each(zk, damaged, await children(zk, paths.TOPICS), read_topic) if topic]
    cache.topic_versions = {topic.name: topic.version for topic in found}
    broker_epochs = {broker.id: broker.epoch for broker in brokers.values()}
    with_id = [topic for topic in found if topic.node.topic_id is not None]
    topics = await _read_all_partitions(zk, damaged, with_id, broker_epochs, cache.restarted_in_sync)
    cache.unreadable = topics_of(damaged)
    configs = await _load_configs(zk, damaged, cache)
    next_producer_id, cache.producer_ids_version = await _read_producer_ids(zk)
    image = ClusterImage(
        cluster_id=decode_cluster_id(paths.CLUSTER_ID, await _data(zk, paths.CLUSTER_ID)),
        offset=0,
        epoch=epoch,
        levels=zookeeper_levels(features or {}),
        brokers=brokers,
        topics=topics,
        topics_by_id={topic.id: topic for topic in topics.values()},
        configs=configs,
        next_producer_id=next_producer_id,
        security=_security_image(cache, damaged),
    )
    without_id = {topic.name: topic.node for topic in found if topic.node.topic_id is None}
    return LoadedCluster(image, cache, without_id, tuple(damaged))


async def read_features(zk: ZooKeeper) -> dict[str, int] | None:
    """Return the finalized feature levels; None if `/feature` is missing or disabled."""
    data = await _data(zk, paths.FEATURE)
    return decode_features(paths.FEATURE, data) if data else None


def zookeeper_levels(features: Mapping[str, int]) -> Levels:
    """Return the levels of Kafka 3.9 in ZooKeeper mode, with its `inter.broker.protocol.version`."""
    return Levels(features, inter_broker_protocol=Emulation.KAFKA_3_9.initial.metadata_version)


# -- brokers ----------------------------------------------------------------------------------------------------------


async def read_broker(zk: ZooKeeper, broker_id: int, watch: Watch | None = None) -> BrokerRegistration | None:
    """Return the registration of a broker, which is not fenced; None if the broker has no znode."""
    path = paths.broker(broker_id)
    try:
        data, stat = await zk.get(path, watch)
    except NoNodeError:
        return None
    broker = BrokerZnode.decode(path, data)
    return BrokerRegistration(
        broker_id, stat.czxid, ZERO_UUID, broker.endpoints, broker.features, broker.rack, fenced=False
    )


async def _read_listed_broker(zk: ZooKeeper, name: str) -> BrokerRegistration | None:
    if not name.isdecimal():
        raise InvalidZnodeError(f"{paths.BROKER_IDS}/{name}", "the name is not a broker id")
    return await read_broker(zk, int(name))


# -- topics -----------------------------------------------------------------------------------------------------------


class FoundTopic(NamedTuple):
    """A topic's znode, with its version."""

    name: str
    node: TopicZnode
    version: int


class FoundState(NamedTuple):
    """The znode of a partition's state, with its version, which is the partition epoch."""

    state: PartitionState
    version: int
    mzxid: int = 0
    """The id of the transaction that wrote the state. Broker epochs are such ids, too: a lower one is earlier."""


async def read_topic(zk: ZooKeeper, name: str, watch: Watch | None = None) -> FoundTopic | None:
    """Return the znode of a topic; None if there is none. Raises InvalidZnodeError, also if partitions are missing."""
    path = paths.topic(name)
    try:
        data, stat = await zk.get(path, watch)
    except NoNodeError:
        return None
    node = TopicZnode.decode(path, data)
    if list(node.partitions) != list(range(len(node.partitions))):
        raise InvalidZnodeError(path, f"partitions are missing: there are only {sorted(node.partitions)}")
    return FoundTopic(name, node, stat.version)


def topics_of(damaged: Iterable[InvalidZnodeError]) -> set[str]:
    """Return the topics that have one of the damaged znodes."""
    prefix = f"{paths.TOPICS}/"
    return {error.path.removeprefix(prefix).partition("/")[0] for error in damaged if error.path.startswith(prefix)}


async def read_partitions(zk: ZooKeeper, topic: FoundTopic) -> tuple[PartitionRegistration, ...]:
    """Return the partitions of a topic with their states. Raises InvalidZnodeError."""
    damaged: list[InvalidZnodeError] = []
    found = await read_each(zk, damaged, [(topic, index) for index in topic.node.partitions], _read_partition)
    if damaged:
        raise damaged[0]
    return tuple(partition for _, _, partition, _ in found)


async def _read_partition(
    zk: ZooKeeper, ref: tuple[FoundTopic, int]
) -> tuple[FoundTopic, int, PartitionRegistration, int]:
    topic, index = ref
    found = await read_state(zk, topic.name, index)
    return topic, index, registered(topic.node.partitions[index], found), 0 if found is None else found.mzxid


async def _read_all_partitions(
    zk: ZooKeeper,
    damaged: list[InvalidZnodeError],
    topics: list[FoundTopic],
    broker_epochs: Mapping[int, int],
    restarted_in_sync: dict[TopicPartition, frozenset[int]],
) -> dict[str, TopicImage]:
    """Return the topics without unreadable partitions; fill `restarted_in_sync` (see `ZnodeCache`)."""
    partition_refs = [(topic, index) for topic in topics for index in topic.node.partitions]
    partitions: dict[str, list[PartitionRegistration]] = {}
    for topic, index, partition, mzxid in await read_each(zk, damaged, partition_refs, _read_partition):
        partitions.setdefault(topic.name, []).append(partition)
        restarted = frozenset(broker for broker in partition.isr if broker_epochs.get(broker, 0) > mzxid)
        if restarted:
            restarted_in_sync[topic.name, index] = restarted
    return {
        topic.name: TopicImage(topic.node.topic_id, topic.name, tuple(partitions[topic.name]))
        for topic in topics
        if topic.node.topic_id is not None and len(partitions.get(topic.name, ())) == len(topic.node.partitions) > 0
    }


async def read_state(zk: ZooKeeper, topic: str, index: int) -> FoundState | None:
    """Return the state of a partition; None if it has none yet."""
    path = paths.state(topic, index)
    try:
        data, stat = await zk.get(path)
    except NoNodeError:
        return None
    return FoundState(PartitionState.decode(path, data), stat.version, stat.mzxid)


def state_of(partition: PartitionRegistration) -> FoundState:
    """Return the state that gives this partition; the inverse of `registered`, without the controller epoch."""
    state = PartitionState(partition.leader, partition.leader_epoch, partition.isr, 0, partition.leader_recovery_state)
    return FoundState(state, partition.partition_epoch)


def registered(assignment: Assignment, found: FoundState | None) -> PartitionRegistration:
    """Return the partition with this assignment and state."""
    if found is None:
        state, version = PartitionState(NO_LEADER, -1, (), 0), NO_STATE
    else:
        state, version, _ = found
    return PartitionRegistration(
        assignment.replicas,
        assignment.replicas if state.isr == assignment.replicas else state.isr,
        state.leader,
        state.leader_epoch,
        version,
        removing_replicas=assignment.removing,
        adding_replicas=assignment.adding,
        leader_recovery_state=state.leader_recovery_state,
    )


# -- configurations, quotas, producer ids -----------------------------------------------------------------------------


async def read_config(zk: ZooKeeper, entity_path: str) -> dict[str, str] | None:
    """Return the configuration of an entity; None if it has no znode."""
    path = paths.config(entity_path)
    try:
        data, _ = await zk.get(path)
    except NoNodeError:
        return None
    return decode_config(path, data)


def config_resource(entity_path: str) -> ConfigResource | None:
    """Return the resource of an entity path; None for a quota entity."""
    kind, _, name = entity_path.partition("/")
    if kind == "topics":
        return ConfigResource(Resource.TOPIC, name)
    if kind == "brokers":
        return ConfigResource(Resource.BROKER, "" if name == paths.DEFAULT_ENTITY else name)
    return None


def config_entity(resource: ConfigResource) -> str | None:
    """Return the entity path of a resource; None for groups and client metrics, which ZooKeeper mode does not store."""
    match resource.type:
        case Resource.TOPIC:
            return f"topics/{resource.name}"
        case Resource.BROKER:
            return f"brokers/{resource.name or paths.DEFAULT_ENTITY}"
    return None


async def _load_configs(
    zk: ZooKeeper, damaged: list[InvalidZnodeError], cache: ZnodeCache
) -> dict[ConfigResource, dict[str, str]]:
    entities = [
        f"{folder}/{name}" for folder in ("topics", "brokers") for name in await children(zk, f"/config/{folder}")
    ]
    entities += await quota_entities(zk, cache.users_with_clients)
    read = await read_each(zk, damaged, entities, _read_entity)
    cache.configs = {entity: values for entity, values in read if values is not None}
    by_resource = {config_resource(entity): values for entity, values in cache.configs.items() if values}
    return {resource: values for resource, values in by_resource.items() if resource is not None}


async def quota_entities(zk: ZooKeeper, users_with_clients: set[str] | None = None) -> list[str]:
    """Return the entity paths of users, clients and addresses that have a znode.

    Add to `users_with_clients` the users that have a znode for their clients.
    """
    entities: list[str] = []
    for folder in ("clients", "ips", "users"):
        entities += [f"{folder}/{name}" for name in await children(zk, f"/config/{folder}")]
    for user in [entity for entity in entities if entity.startswith("users/")]:
        with suppress(NoNodeError):
            entities += [f"{user}/clients/{name}" for name in await zk.children(f"{paths.config(user)}/clients")]
            if users_with_clients is not None:
                users_with_clients.add(user)
    return entities


async def _read_entity(zk: ZooKeeper, entity: str) -> tuple[str, dict[str, str] | None]:
    return entity, await read_config(zk, entity)


def _security_image(cache: ZnodeCache, damaged: list[InvalidZnodeError]) -> SecurityImage:
    """Return the quotas and credentials in the cache; add the errors of damaged values to `damaged`."""
    client_quotas: dict[QuotaEntity, dict[str, float]] = {}
    scram: dict[tuple[str, int], UserScramCredentialRecord] = {}
    for entity, values in cache.configs.items():
        if not is_quota_entity(entity):
            continue
        try:
            limits = quotas(entity, values)
            is_user = entity.count("/") == 1 and entity.startswith("users/")
            records = list(credentials(entity, values)) if is_user else []
        except InvalidZnodeError as error:
            damaged.append(error)
            continue
        if limits:
            client_quotas[quota_entity(entity)] = limits
        scram.update(((record.name, record.mechanism), record) for record in records)
    return SecurityImage(scram_credentials=scram, client_quotas=client_quotas)


async def _read_producer_ids(zk: ZooKeeper) -> tuple[int, int]:
    """Return the next producer id, and the version of the znode."""
    data, stat = await zk.get(paths.PRODUCER_IDS)
    return ProducerIdBlock.decode(paths.PRODUCER_IDS, data).last + 1 if data else 0, stat.version


# -- reading ----------------------------------------------------------------------------------------------------------


async def children(zk: ZooKeeper, path: str, watch: Watch | None = None) -> list[str]:
    """Return the names of the children; none for a missing znode."""
    try:
        return await zk.children(path, watch)
    except NoNodeError:
        return []


async def _data(zk: ZooKeeper, path: str) -> bytes:
    try:
        return (await zk.get(path))[0]
    except NoNodeError:
        return b""


async def read_each(
    zk: ZooKeeper,
    damaged: list[InvalidZnodeError],
    items: Iterable[Item],
    read: Callable[[ZooKeeper, Item], Awaitable[Found]],
) -> list[Found]:
    """Read the items, and return them in order; add the error of a damaged one to `damaged`."""
    found: list[Found] = []
    rest = iter(items)
    while chunk := list(islice(rest, _MAX_CONCURRENT_READS)):
        for result in await asyncio.gather(*(read(zk, item) for item in chunk), return_exceptions=True):
            if isinstance(result, InvalidZnodeError):
                damaged.append(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                found.append(result)
    return found
