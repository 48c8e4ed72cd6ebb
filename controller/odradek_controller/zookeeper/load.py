"""A cluster as it stands in ZooKeeper, read into an image: what a controller does when it is elected.

Owns which node says what of the image, and reads what others change one by one for `watches`. Three things that are
nodes' versions have a place in the image: a broker's epoch is its node's czxid, a partition's epoch the version of its
state. The other versions, which nobody but the store needs, are in `ZnodeCache`.
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

_AT_ONCE = 500
"""How many requests are under way together."""

NO_STATE = -1
"""The partition epoch of a partition that is assigned, and has no state yet: the controller begins it."""


@dataclass(slots=True)
class ZnodeCache:
    """What the nodes say that the image has no place for."""

    topics: dict[str, int] = field(default_factory=dict)
    """Name of a topic to the version of its node."""
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    """Entity path to configuration, of every entity that has a node."""
    with_clients: set[str] = field(default_factory=set)
    """Entity paths of users that have a node for their clients."""
    marked: set[str] = field(default_factory=set)
    """Topics named in `/admin/delete_topics`."""
    unreadable: set[str] = field(default_factory=set)
    """Topics that are there, and not in the image, because some node of theirs cannot be read."""
    producer_ids: int = 0
    """The version of `/latest_producer_id_block`."""
    restarted_in_sync: dict[TopicPartition, frozenset[int]] = field(default_factory=dict)
    """Who is in sync by a state that is older than its registration: it began anew since, and the controller of that
    time did not live to hear of it."""


class LoadedCluster(NamedTuple):
    image: ClusterImage
    znode_cache: ZnodeCache
    without_id: Mapping[str, TopicZnode]
    """Topics of before topic ids: they are not in the image until they have one."""
    damaged: tuple[InvalidZnodeError, ...]
    """What could not be read, and is left alone: such a topic or broker is not in the image."""


async def load(zk: ZooKeeper, epoch: int) -> LoadedCluster:
    """All of it. Raises InvalidZnodeError if the cluster itself cannot be read, and what a `ZooKeeper` raises."""
    cache = ZnodeCache()
    damaged: list[InvalidZnodeError] = []
    features = await read_features(zk)
    brokers = {
        broker.id: broker
        for broker in await read_each(zk, damaged, await children(zk, paths.BROKER_IDS), _read_listed_broker)
        if broker is not None
    }
    found = [topic for topic in await read_each(zk, damaged, await children(zk, paths.TOPICS), read_topic) if topic]
    cache.topics = {topic.name: topic.version for topic in found}
    began = {broker.id: broker.epoch for broker in brokers.values()}
    named = [topic for topic in found if topic.node.topic_id is not None]
    topics = await _read_all_partitions(zk, damaged, named, began, cache.restarted_in_sync)
    cache.unreadable = topics_of(damaged)
    configs = await _load_configs(zk, damaged, cache)
    next_producer_id, cache.producer_ids = await _read_producer_ids(zk)
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
        security=_kept(cache, damaged),
    )
    without_id = {topic.name: topic.node for topic in found if topic.node.topic_id is None}
    return LoadedCluster(image, cache, without_id, tuple(damaged))


async def read_features(zk: ZooKeeper) -> dict[str, int] | None:
    """The cluster's finalized levels; None if they are not kept, or not in force."""
    data = await _data(zk, paths.FEATURE)
    return decode_features(paths.FEATURE, data) if data else None


def zookeeper_levels(features: Mapping[str, int]) -> Levels:
    """Those of Kafka 3.9 in ZooKeeper mode, whose `inter.broker.protocol.version` is its own."""
    return Levels(features, inter_broker_protocol=Emulation.KAFKA_3_9.initial.metadata_version)


# -- brokers ----------------------------------------------------------------------------------------------------------


async def read_broker(zk: ZooKeeper, broker_id: int, watch: Watch | None = None) -> BrokerRegistration | None:
    """A broker that is there, as it registered; what has registered is ready."""
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
        raise InvalidZnodeError(f"{paths.BROKER_IDS}/{name}", "no broker has such an id")
    return await read_broker(zk, int(name))


# -- topics -----------------------------------------------------------------------------------------------------------


class FoundTopic(NamedTuple):
    name: str
    node: TopicZnode
    version: int


class FoundState(NamedTuple):
    state: PartitionState
    version: int
    written: int = 0
    """The transaction that wrote it, on the scale of brokers' epochs."""


async def read_topic(zk: ZooKeeper, name: str, watch: Watch | None = None) -> FoundTopic | None:
    """A topic's node. Raises InvalidZnodeError also if partitions are left out."""
    path = paths.topic(name)
    try:
        data, stat = await zk.get(path, watch)
    except NoNodeError:
        return None
    node = TopicZnode.decode(path, data)
    if list(node.partitions) != list(range(len(node.partitions))):
        raise InvalidZnodeError(path, f"partitions are left out: there are {sorted(node.partitions)}")
    return FoundTopic(name, node, stat.version)


def topics_of(damaged: Iterable[InvalidZnodeError]) -> set[str]:
    """To which topics the nodes belong that could not be read."""
    under = f"{paths.TOPICS}/"
    return {error.path.removeprefix(under).partition("/")[0] for error in damaged if error.path.startswith(under)}


async def read_partitions(zk: ZooKeeper, topic: FoundTopic) -> tuple[PartitionRegistration, ...]:
    """All partitions of one topic with their states. Raises InvalidZnodeError."""
    damaged: list[InvalidZnodeError] = []
    found = await read_each(zk, damaged, [(topic, index) for index in topic.node.partitions], _read_partition)
    if damaged:
        raise damaged[0]
    return tuple(partition for _, _, partition, _ in found)


async def _read_partition(
    zk: ZooKeeper, place: tuple[FoundTopic, int]
) -> tuple[FoundTopic, int, PartitionRegistration, int]:
    topic, index = place
    found = await read_state(zk, topic.name, index)
    return topic, index, registered(topic.node.partitions[index], found), 0 if found is None else found.written


async def _read_all_partitions(
    zk: ZooKeeper,
    damaged: list[InvalidZnodeError],
    topics: list[FoundTopic],
    began: Mapping[int, int],
    restarted_in_sync: dict[TopicPartition, frozenset[int]],
) -> dict[str, TopicImage]:
    """The topics of whose partitions none is damaged. `began` are the epochs of the brokers that are there."""
    places = [(topic, index) for topic in topics for index in topic.node.partitions]
    partitions: dict[str, list[PartitionRegistration]] = {}
    for topic, index, partition, written in await read_each(zk, damaged, places, _read_partition):
        partitions.setdefault(topic.name, []).append(partition)
        doubts = frozenset(broker for broker in partition.isr if began.get(broker, 0) > written)
        if doubts:
            restarted_in_sync[topic.name, index] = doubts
    return {
        topic.name: TopicImage(topic.node.topic_id, topic.name, tuple(partitions[topic.name]))
        for topic in topics
        if topic.node.topic_id is not None and len(partitions.get(topic.name, ())) == len(topic.node.partitions) > 0
    }


async def read_state(zk: ZooKeeper, topic: str, index: int) -> FoundState | None:
    """A partition's state; None if it has none yet."""
    path = paths.state(topic, index)
    try:
        data, stat = await zk.get(path)
    except NoNodeError:
        return None
    return FoundState(PartitionState.decode(path, data), stat.version, stat.mzxid)


def state_of(partition: PartitionRegistration) -> FoundState:
    """The state that a partition was read from, but for the term in which it was written."""
    state = PartitionState(partition.leader, partition.leader_epoch, partition.isr, 0, partition.leader_recovery_state)
    return FoundState(state, partition.partition_epoch)


def registered(assignment: Assignment, found: FoundState | None) -> PartitionRegistration:
    """What assignment and state say together."""
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
    """An entity's configuration; None if it has no node."""
    path = paths.config(entity_path)
    try:
        data, _ = await zk.get(path)
    except NoNodeError:
        return None
    return decode_config(path, data)


def config_resource(entity_path: str) -> ConfigResource | None:
    """What in the image has this configuration; None if it is a quota entity."""
    kind, _, name = entity_path.partition("/")
    if kind == "topics":
        return ConfigResource(Resource.TOPIC, name)
    if kind == "brokers":
        return ConfigResource(Resource.BROKER, "" if name == paths.DEFAULT_ENTITY else name)
    return None


def config_entity(resource: ConfigResource) -> str | None:
    """The inverse; None if ZooKeeper mode has no place for it (groups, client metrics)."""
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
    entities += await quota_entities(zk, cache.with_clients)
    read = await read_each(zk, damaged, entities, _read_entity)
    cache.configs = {entity: values for entity, values in read if values is not None}
    found = {config_resource(entity): values for entity, values in cache.configs.items() if values}
    return {resource: values for resource, values in found.items() if resource is not None}


async def quota_entities(zk: ZooKeeper, with_clients: set[str] | None = None) -> list[str]:
    """The paths of users, clients and addresses that have a node. `with_clients` gets the users that have a node for
    their clients."""
    entities: list[str] = []
    for folder in ("clients", "ips", "users"):
        entities += [f"{folder}/{name}" for name in await children(zk, f"/config/{folder}")]
    for user in [entity for entity in entities if entity.startswith("users/")]:
        with suppress(NoNodeError):
            entities += [f"{user}/clients/{name}" for name in await zk.children(f"{paths.config(user)}/clients")]
            if with_clients is not None:
                with_clients.add(user)
    return entities


async def _read_entity(zk: ZooKeeper, entity: str) -> tuple[str, dict[str, str] | None]:
    return entity, await read_config(zk, entity)


def _kept(cache: ZnodeCache, damaged: list[InvalidZnodeError]) -> SecurityImage:
    limits: dict[QuotaEntity, dict[str, float]] = {}
    scram: dict[tuple[str, int], UserScramCredentialRecord] = {}
    for entity, values in cache.configs.items():
        if not is_quota_entity(entity):
            continue
        try:
            found = quotas(entity, values)
            known = list(credentials(entity, values)) if entity.count("/") == 1 and entity.startswith("users") else []
        except InvalidZnodeError as error:
            damaged.append(error)
            continue
        if found:
            limits[quota_entity(entity)] = found
        scram.update(((record.name, record.mechanism), record) for record in known)
    return SecurityImage(scram_credentials=scram, client_quotas=limits)


async def _read_producer_ids(zk: ZooKeeper) -> tuple[int, int]:
    data, stat = await zk.get(paths.PRODUCER_IDS)
    return ProducerIdBlock.decode(paths.PRODUCER_IDS, data).last + 1 if data else 0, stat.version


# -- reading ----------------------------------------------------------------------------------------------------------


async def children(zk: ZooKeeper, path: str, watch: Watch | None = None) -> list[str]:
    """None of a node that is not there."""
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
    """What is found for each item, in order, without those that are damaged."""
    found: list[Found] = []
    rest = iter(items)
    while chunk := list(islice(rest, _AT_ONCE)):
        for result in await asyncio.gather(*(read(zk, item) for item in chunk), return_exceptions=True):
            if isinstance(result, InvalidZnodeError):
                damaged.append(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                found.append(result)
    return found
