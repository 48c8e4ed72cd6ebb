"""The znode operations that store a change of the image, in Kafka's order.

Pure: compares the image before and after the change with the cached state of the znodes. Leaves writing to the store,
which then calls `update_cache`. A znode that another client has already changed to the new state gets no operation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..image import ClusterImage, MetadataDelta, PartitionRegistration, TopicImage
from ..store import UnsupportedRecordError
from . import paths
from .client import Create, Delete, Op, Set
from .config_entities import (
    MECHANISMS,
    credential_text,
    entity_path,
    quota_text,
    user_path,
)
from .load import NO_STATE, FoundState, ZnodeCache, config_entity
from .znodes import (
    Assignment,
    PartitionState,
    ProducerIdBlock,
    TopicPartition,
    TopicZnode,
    encode_config,
    encode_config_change,
)


@dataclass(slots=True)
class ExternalChanges:
    """Changes by other ZooKeeper clients that the image does not have yet. Configurations are in `ZnodeCache`."""

    topics: dict[str, TopicZnode] = field(default_factory=dict)
    """Topic name to the data of its new or changed znode."""
    deleted_topics: set[str] = field(default_factory=set)
    """Topics whose znodes another client has deleted."""
    states: dict[TopicPartition, FoundState] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    """Existing znodes of partitions without a state, and their parents."""


@dataclass(slots=True)
class ZnodeOperations:
    """The operations for one change, and the updates of `ZnodeCache` after them."""

    epoch: int
    znode_cache: ZnodeCache
    external_changes: ExternalChanges
    producer_ids_broker: int = -1
    """The broker that gets the new block of producer ids, if there is one."""
    ops: list[Op] = field(default_factory=list)
    topic_versions: dict[str, int | None] = field(default_factory=dict)
    """Topic name to the new version of its znode; None for a deleted topic."""
    configs: dict[str, dict[str, str] | None] = field(default_factory=dict)
    """Entity path to the new configuration; None for a deleted znode."""
    allocates_producer_ids: bool = False
    """Whether the operations allocate a block of producer ids."""

    def add(self, delta: MetadataDelta) -> None:
        """Add the operations for the delta. Raises UnsupportedRecordError."""
        for topic in delta.deleted_topics.values():
            self._delete_topic(topic)
        for topic_id, indexes in delta.partitions.items():
            before = delta.before.topics_by_id.get(topic_id)
            after = delta.image.topics_by_id[topic_id]
            if before is None:
                self._create_topic(after, delta.image)
            else:
                self._set_assignment(after, TopicZnode(before.id, _assignments(before)))
            self._set_states(after, () if before is None else before.partitions, indexes)
        self._set_configs(delta)
        if delta.producer_ids:
            self._set_producer_ids(delta)
        if delta.security:
            self._set_quotas_and_credentials(delta)

    def update_cache(self) -> None:
        """Update the cache after the store has written the operations."""
        for name, version in self.topic_versions.items():
            if version is None:
                self.znode_cache.topic_versions.pop(name, None)
                self.znode_cache.deletion_requested.discard(name)
            else:
                self.znode_cache.topic_versions[name] = version
        for entity, values in self.configs.items():
            if values is None:
                self.znode_cache.configs.pop(entity, None)
            else:
                self.znode_cache.configs[entity] = values
        self.znode_cache.producer_ids_version += self.allocates_producer_ids

    # -- topics -------------------------------------------------------------------------------------------------------

    def _delete_topic(self, topic: TopicImage) -> None:
        """Delete the znodes of the topic from the leaves up, then its configuration, then the deletion request."""
        name = topic.name
        if name in self.external_changes.deleted_topics:
            self.topic_versions[name] = (
                self.znode_cache.topic_versions[name] if name in self.external_changes.topics else None
            )
            return
        for index, partition in enumerate(topic.partitions):
            if partition.partition_epoch != NO_STATE:
                self.ops.append(Delete(paths.state(name, index)))
            if self._has_folder(paths.partition(name, index), partition):
                self.ops.append(Delete(paths.partition(name, index)))
        if self._has_folders(topic.name, topic.partitions):
            self.ops.append(Delete(paths.partitions(name)))
        self.ops.append(Delete(paths.topic(name)))
        entity = f"topics/{name}"
        if entity in self.znode_cache.configs:
            self.ops.append(Delete(paths.config(entity)))
            self.configs[entity] = None
        if name in self.znode_cache.deletion_requested:
            self.ops.append(Delete(paths.delete_topic(name)))
        self.topic_versions[name] = None

    def _create_topic(self, topic: TopicImage, image: ClusterImage) -> None:
        """Create the configuration, then the topic, so that a controller that reads the topic finds both."""
        if topic.name in self.external_changes.topics:
            self._set_assignment(topic, self.external_changes.topics[topic.name])
            return
        values = dict(image.topic_configs(topic.name))
        self._put_config(f"topics/{topic.name}", values, notify=False)
        self.ops.append(Create(paths.topic(topic.name), TopicZnode(topic.id, _assignments(topic)).encode()))
        self.topic_versions[topic.name] = 0

    def _set_assignment(self, topic: TopicImage, before: TopicZnode) -> None:
        known = self.external_changes.topics.get(topic.name, before)
        wanted = TopicZnode(topic.id, _assignments(topic))
        if wanted != known:
            version = self.znode_cache.topic_versions[topic.name]
            self.ops.append(Set(paths.topic(topic.name), wanted.encode(), version))
            self.topic_versions[topic.name] = version + 1

    def _set_states(
        self, topic: TopicImage, before: tuple[PartitionRegistration, ...], indexes: tuple[int, ...]
    ) -> None:
        name = topic.name
        folders = self._has_folders(name, before)
        for index in indexes:
            after = topic.partitions[index]
            if after.partition_epoch == NO_STATE:
                continue
            path = paths.state(name, index)
            old = before[index] if index < len(before) else None
            version = NO_STATE if old is None else old.partition_epoch
            state = self._state(after)
            found = self.external_changes.states.get((name, index))
            if found is not None and _already_has(found, state, after.partition_epoch):
                continue
            data = state.encode()
            if version == NO_STATE:
                if not folders:
                    self.ops.append(Create(paths.partitions(name)))
                    folders = True
                if paths.partition(name, index) not in self.external_changes.folders:
                    self.ops.append(Create(paths.partition(name, index)))
                self.ops.append(Create(path, data))
                version = 0
            # The partition epoch is the version of the znode: one write for each record that incremented the epoch.
            self.ops += [Set(path, data, step) for step in range(version, after.partition_epoch)]

    def _state(self, partition: PartitionRegistration) -> PartitionState:
        return PartitionState(
            partition.leader, partition.leader_epoch, partition.isr, self.epoch, partition.leader_recovery_state
        )

    def _has_folder(self, path: str, partition: PartitionRegistration) -> bool:
        return partition.partition_epoch != NO_STATE or path in self.external_changes.folders

    def _has_folders(self, name: str, partitions: tuple[PartitionRegistration, ...]) -> bool:
        return paths.partitions(name) in self.external_changes.folders or any(
            partition.partition_epoch != NO_STATE for partition in partitions
        )

    # -- configurations -----------------------------------------------------------------------------------------------

    def _set_configs(self, delta: MetadataDelta) -> None:
        deleted = {f"topics/{topic.name}" for topic in delta.deleted_topics.values()}
        for resource in sorted(delta.configs):
            entity = config_entity(resource)
            if entity is None:
                raise UnsupportedRecordError(f"{resource} has no configuration in ZooKeeper")
            if entity not in self.configs and entity not in deleted:
                self._put_config(entity, dict(delta.image.configs.get(resource, {})))

    def _put_config(self, entity: str, values: dict[str, str], notify: bool = True) -> None:
        known = self.configs[entity] if entity in self.configs else self.znode_cache.configs.get(entity)
        if known == values:
            return
        path = paths.config(entity)
        self.ops.append(Create(path, encode_config(values)) if known is None else Set(path, encode_config(values)))
        self.configs[entity] = values
        if notify:
            self.ops.append(Create(paths.CONFIG_CHANGE, encode_config_change(entity), sequential=True))

    # -- quotas, credentials, producer ids ----------------------------------------------------------------------------

    def _set_quotas_and_credentials(self, delta: MetadataDelta) -> None:
        before, after = delta.before.security, delta.image.security
        wanted: dict[str, dict[str, str]] = {}
        for quota in {**before.client_quotas, **after.client_quotas}:
            old, new = before.client_quotas.get(quota, {}), after.client_quotas.get(quota, {})
            if old != new:
                values = self._entity(wanted, entity_path(quota))
                _replace(values, old, {key: quota_text(key, value) for key, value in new.items()})
        for key in sorted({*before.scram_credentials, *after.scram_credentials}):
            if before.scram_credentials.get(key) != after.scram_credentials.get(key):
                user, mechanism = key
                found = after.scram_credentials.get(key)
                text = {} if found is None else {MECHANISMS[mechanism]: credential_text(found)}
                _replace(self._entity(wanted, user_path(user)), {MECHANISMS[mechanism]: ""}, text)
        for entity, values in sorted(wanted.items()):  # a user before its clients
            self._create_parents(entity)
            self._put_config(entity, values)

    def _entity(self, wanted: dict[str, dict[str, str]], entity: str) -> dict[str, str]:
        return wanted.setdefault(entity, dict(self.znode_cache.configs.get(entity, {})))

    def _create_parents(self, entity: str) -> None:
        user, separator, _client = entity.partition("/clients/")
        if not separator or entity in self.znode_cache.configs:
            return
        if user not in self.znode_cache.configs and user not in self.configs:
            self.ops.append(Create(paths.config(user)))
            self.configs[user] = {}
        if user not in self.znode_cache.users_with_clients:
            self.ops.append(Create(f"{paths.config(user)}/clients"))
            self.znode_cache.users_with_clients.add(user)

    def _set_producer_ids(self, delta: MetadataDelta) -> None:
        block = ProducerIdBlock(
            self.producer_ids_broker, delta.before.next_producer_id, delta.image.next_producer_id - 1
        )
        self.ops.append(Set(paths.PRODUCER_IDS, block.encode(), self.znode_cache.producer_ids_version))
        self.allocates_producer_ids = True


def _assignments(topic: TopicImage) -> dict[int, Assignment]:
    return {
        index: Assignment(partition.replicas, partition.adding_replicas, partition.removing_replicas)
        for index, partition in enumerate(topic.partitions)
    }


def _already_has(found: FoundState, state: PartitionState, version: int) -> bool:
    """Return whether the znode already has this state; the controller epoch may differ."""
    return found.version == version and found.state._replace(controller_epoch=state.controller_epoch) == state


def _replace(values: dict[str, str], old: Mapping[str, object], new: Mapping[str, str]) -> None:
    for name in old:
        values.pop(name, None)
    values.update(new)
