"""Readers of the znodes that other clients change: brokers, topics, requests of tools, notifications.

Owns one reader for each znode that the controller watches. A reader compares the znodes with the image, returns the
records that follow, and passes the changes that are already stored to the store. Readers delete completed requests and
handled notifications; if another client changes one first, the next run reads it again. Leaves decisions to
`reconciling` and the commands, and the order of runs to `watches`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from odradek_log.reporting import Reporter
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from odradek_wire.messages.elect_leaders import ElectLeadersRequest
from odradek_wire.messages.partition_change_record import PartitionChangeRecord
from odradek_wire.messages.remove_topic_record import RemoveTopicRecord
from odradek_wire.uuid import random_uuid

from ..commands.brokers import elect_leaderless
from ..commands.context import CommandContext
from ..commands.elect_leaders import PREFERRED, elect_leaders
from ..commands.reassign import alter_reassignments
from ..image import BrokerRegistration, ClusterImage, MetadataDelta, TopicImage
from ..replay import replay
from . import paths
from .client import Delete, NoNodeError, Set, Watch, ZooKeeper
from .config_entities import is_quota_entity
from .json_text import InvalidZnodeError
from .load import (
    NO_STATE,
    FoundTopic,
    config_resource,
    read_broker,
    read_config,
    read_each,
    read_partitions,
    read_state,
    read_topic,
    registered,
    state_of,
    topics_of,
)
from .reconciling import (
    PendingRecords,
    broker_change_records,
    config_change_records,
    new_partition_records,
    new_topic_records,
    state_change_records,
)
from .store import ZooKeeperStore
from .topic_deletion import TopicDeletionManager
from .znode_operations import ExternalChanges
from .znodes import (
    Assignment,
    TopicPartition,
    TopicZnode,
    decode_config_change,
    decode_log_dir_event,
    decode_partitions,
    decode_reassignment,
    encode_reassignment,
)

CHANGE_EXPIRES_MS = 15 * 60 * 1000
"""The lifetime of a change notification, as in Kafka."""

Reader = Callable[[ClusterImage], Awaitable[Sequence[Message]]]
Notification = TypeVar("Notification")
Replicas = tuple[int, ...]


class ZnodeReaders:
    """The readers of one term; `table` has each reader under the path that it watches.

    `watch(path)` returns the watch to register with a read, or None. A reader calls `unwatch(path)` if the znode is
    missing, so that no watch was registered, and `run_again(path)` to run once more.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        context: CommandContext,
        store: ZooKeeperStore,
        deletions: TopicDeletionManager,
        *,
        watch: Callable[[str], Watch | None],
        unwatch: Callable[[str], None],
        run_again: Callable[[str], None],
        now_ms: Callable[[], int],
        randbytes: Callable[[int], bytes],
        log_dir_failed: Callable[[list[int]], None],
        reporter: Reporter,
    ) -> None:
        self._zk = zk
        self._context = context
        self._store = store
        self._deletions = deletions
        self._watch = watch
        self._unwatch = unwatch
        self._run_again = run_again
        self._now_ms = now_ms
        self._randbytes = randbytes
        self._log_dir_failed = log_dir_failed
        self._reporter = reporter
        self._unchanged_topics: set[str] = set()
        """Topics whose watched znodes have not changed since they were read."""
        self._config_changes_seen: dict[str, int] = {}
        """The path of each notification to the time when it was first read."""
        self._reassigning: dict[TopicPartition, Replicas] = {}
        """The reassignments that the last run left in the request."""
        self._election_to_delete: tuple[bytes, int] | None = None
        """The data and the version of the election request that the next run deletes."""
        self._delayed_deletions: set[str] = set()
        """Topics whose deletion waits for the end of a reassignment."""
        self.table: Mapping[str, Reader] = {
            paths.BROKER_IDS: self._read_brokers,
            paths.TOPICS: self._read_topics,
            paths.DELETE_TOPICS: self._read_delete_topics,
            paths.REASSIGN_PARTITIONS: self._read_reassignments,
            paths.PREFERRED_ELECTION: self._read_preferred_election,
            paths.CONFIG_CHANGES: self._read_config_changes,
            paths.ISR_CHANGES: self._read_isr_changes,
            paths.LOG_DIR_EVENTS: self._read_log_dir_events,
        }

    def forget_unchanged_topics(self) -> None:
        """Read every topic in the next run, because all watches are lost."""
        self._unchanged_topics.clear()

    def forget_unchanged_topic(self, name: str) -> None:
        """Read this topic in the next run, because its znode was set or deleted."""
        self._unchanged_topics.discard(name)

    def affected_by(self, delta: MetadataDelta) -> list[str]:
        """Return the paths whose readers must run after this change, which may have completed a reassignment or deleted
        a topic."""
        deleted = {topic.name for topic in delta.deleted_topics.values()}
        changed = deleted.union(delta.image.topics_by_id[key].name for key in delta.partitions)
        affected = []
        if not changed.isdisjoint(topic for topic, _ in self._reassigning):
            affected.append(paths.REASSIGN_PARTITIONS)
        requested = self._store.znode_cache.deletion_requested
        if not changed.isdisjoint(self._delayed_deletions) or not deleted.isdisjoint(requested):
            affected.append(paths.DELETE_TOPICS)
        return affected

    # -- brokers and topics -------------------------------------------------------------------------------------------

    async def _read_brokers(self, image: ClusterImage) -> Sequence[Message]:
        present: dict[int, BrokerRegistration] = {}
        for name in await self._children(paths.BROKER_IDS):
            path = f"{paths.BROKER_IDS}/{name}"
            try:
                broker = await read_broker(self._zk, int(name), self._watch(path))
            except (ValueError, InvalidZnodeError) as error:
                self._report_damaged(path, error)
                continue
            if broker is None:
                self._unwatch(path)
            else:
                present[broker.id] = broker
        return broker_change_records(image, present, self._context)

    async def _read_topics(self, image: ClusterImage) -> Sequence[Message]:
        """Read new, deleted and changed topics."""
        names = set(await self._children(paths.TOPICS))
        to_read = sorted(names - self._unchanged_topics)
        self._unchanged_topics = names
        external = ExternalChanges(deleted_topics=set(image.topics.keys() - names))
        records: list[Message] = [RemoveTopicRecord(image.topics[name].id) for name in sorted(external.deleted_topics)]
        damaged: list[InvalidZnodeError] = []
        for found in await read_each(self._zk, damaged, to_read, self._read_topic):
            if found is not None:
                try:
                    records += await self._topic_records(image, found, external)
                except InvalidZnodeError as error:
                    damaged.append(error)
        for damage in damaged:
            self._report_damaged(damage.path, damage)
        unreadable = (self._store.znode_cache.unreadable & names - set(to_read)) | topics_of(damaged)
        self._store.znode_cache.unreadable = unreadable - image.topics.keys()
        self._store.external_changes = external
        return records

    async def _read_topic(self, zk: ZooKeeper, name: str) -> FoundTopic | None:
        path = paths.topic(name)
        found = await read_topic(zk, name, self._watch(path))
        if found is None:
            self._unwatch(path)
        return found

    async def _topic_records(self, image: ClusterImage, found: FoundTopic, external: ExternalChanges) -> list[Message]:
        """Return the records that follow from a topic's znode; add the stored changes to `external`."""
        name, cached_versions = found.name, self._store.znode_cache.topic_versions
        known = image.topics.get(name)
        topic_id = found.node.topic_id
        if known is not None and cached_versions.get(name) == found.version and topic_id in (None, known.id):
            return []
        if topic_id is None:
            topic_id = known.id if known is not None else random_uuid(self._randbytes)
            found = found._replace(node=TopicZnode(topic_id, found.node.partitions), version=found.version + 1)
            if not await self._store.try_write(Set(paths.topic(name), found.node.encode(), found.version - 1)):
                return []
        partitions = await read_partitions(self._zk, found)
        cached_versions[name] = found.version
        external.topics[name] = found.node
        records: list[Message] = []
        if known is not None and known.id != topic_id:
            external.deleted_topics.add(name)
            records.append(RemoveTopicRecord(known.id))
            image, known = replay(image, records).image, None
        for index in range(0 if known is None else len(known.partitions), len(partitions)):
            if partitions[index].partition_epoch != NO_STATE:
                external.states[name, index] = state_of(partitions[index])
        if known is not None:
            return new_partition_records(image, known, partitions)
        if partitions:
            records += new_topic_records(image, TopicImage(topic_id, name, partitions))
            records += await self._config_records(image, f"topics/{name}")
        return records

    # -- requests of tools --------------------------------------------------------------------------------------------

    async def _read_delete_topics(self, image: ClusterImage) -> Sequence[Message]:
        """Read the topics to delete. A deletion begins after the topic's reassignments, and ends when no broker has a
        replica."""
        self._deletions.forget_removed_topics(image)
        enabled = self._context.flag(image, "delete.topic.enable")
        topics = []
        for name in await self._children(paths.DELETE_TOPICS):
            topic = image.topics.get(name)
            if topic is not None and enabled:
                topics.append(topic)
            elif not enabled or name not in self._store.znode_cache.unreadable:
                await self._store.try_write(Delete(paths.delete_topic(name)))
        self._store.znode_cache.deletion_requested = {topic.name for topic in topics}
        self._delayed_deletions = {
            topic.name
            for topic in topics
            if topic.id not in self._deletions and any(partition.reassigning for partition in topic.partitions)
        }
        self._deletions.begin([topic for topic in topics if topic.name not in self._delayed_deletions])
        return [RemoveTopicRecord(topic.id) for topic in topics if self._deletions.is_complete(topic)]

    async def _read_reassignments(self, image: ClusterImage) -> Sequence[Message]:
        """Start the listed reassignments, and remove the completed and the replaced ones from the list."""
        request = await self._read_request(paths.REASSIGN_PARTITIONS)
        if request is None:
            self._reassigning = {}
            return ()
        data, version = request
        try:
            listed = decode_reassignment(paths.REASSIGN_PARTITIONS, data)
        except InvalidZnodeError as error:
            self._report_damaged(paths.REASSIGN_PARTITIONS, error)
            listed = {}
        in_progress = {key: replicas for key, replicas in listed.items() if _is_reassigning_to(image, key, replicas)}
        # A reassignment that the last run left in the request is not new: if it is not in progress, it has ended.
        new = {
            key: replicas
            for key, replicas in listed.items()
            if key not in in_progress and self._reassigning.get(key) != replicas
        }
        records = self._begin_reassignments(image, new)
        begun = {
            (image.topics_by_id[record.topic_id].name, record.partition_id)
            for record in records
            if isinstance(record, PartitionChangeRecord)
        }
        remaining = {key: replicas for key, replicas in listed.items() if key in in_progress or key in begun}
        self._reassigning = remaining
        if not remaining:
            await self._store.try_write(Delete(paths.REASSIGN_PARTITIONS, version))
        elif remaining != listed:
            await self._store.try_write(Set(paths.REASSIGN_PARTITIONS, encode_reassignment(remaining), version))
        return records

    def _begin_reassignments(self, image: ClusterImage, new: Mapping[TopicPartition, Replicas]) -> Sequence[Message]:
        request = AlterPartitionReassignmentsRequest()
        for (topic, index), replicas in new.items():
            partition = AlterPartitionReassignmentsRequest.ReassignablePartition(index, list(replicas))
            request.topics.append(AlterPartitionReassignmentsRequest.ReassignableTopic(topic, [partition]))
        image = self._deletions.without_deleted(image)
        records, response = alter_reassignments(image, request, self._context, allow_unregistered=True)
        for topic_result in response.responses:
            for result in topic_result.partitions:
                if result.error_code != ErrorCode.NONE:
                    name = f"{topic_result.name}-{result.partition_index}"
                    self._reporter.warning("reassignment cannot start", partition=name, why=result.error_message)
        return records

    async def _read_preferred_election(self, image: ClusterImage) -> Sequence[Message]:
        """Elect the listed preferred leaders. The next run, when the records are stored, deletes the request."""
        request = await self._read_request(paths.PREFERRED_ELECTION)
        if request is None or request == self._election_to_delete:
            self._election_to_delete = None
            if request is not None:
                await self._store.try_write(Delete(paths.PREFERRED_ELECTION, request[1]))
            return ()
        self._election_to_delete = request
        self._run_again(paths.PREFERRED_ELECTION)
        try:
            requested = [
                ElectLeadersRequest.TopicPartitions(topic, [index])
                for topic, index in decode_partitions(paths.PREFERRED_ELECTION, request[0])
            ]
        except InvalidZnodeError as error:
            self._report_damaged(paths.PREFERRED_ELECTION, error)
            return ()
        election = ElectLeadersRequest(election_type=PREFERRED, topic_partitions=requested)
        return elect_leaders(self._deletions.without_deleted(image), election, self._context)[0]

    async def _read_request(self, path: str) -> tuple[bytes, int] | None:
        """Return the data and the version of a request znode; None if there is none."""
        if await self._zk.exists(path, self._watch(path)) is None:
            return None
        try:
            data, stat = await self._zk.get(path)
        except NoNodeError:
            return None
        return data, stat.version

    # -- notifications ------------------------------------------------------------------------------------------------

    async def _read_config_changes(self, image: ClusterImage) -> Sequence[Message]:
        """Read the configurations that new notifications name; delete notifications that have expired."""
        now_ms = self._now_ms()
        entities: dict[str, None] = {}
        listed: dict[str, int] = {}
        for name in await self._children(paths.CONFIG_CHANGES):
            path = f"{paths.CONFIG_CHANGES}/{name}"
            seen_ms = self._config_changes_seen.get(path)
            if seen_ms is None:
                entity = await self._read_notification(path, decode_config_change)
                entities.update({} if entity is None else {entity: None})
            elif now_ms - seen_ms > CHANGE_EXPIRES_MS:
                await self._store.try_write(Delete(path))
                continue
            listed[path] = now_ms if seen_ms is None else seen_ms
        pending = PendingRecords(image)
        for entity in entities:
            pending.add(await self._config_records(image, entity))
        self._config_changes_seen = listed
        if pending.records:
            pending.add(elect_leaderless(pending.image, self._context))
        return pending.records

    async def _config_records(self, image: ClusterImage, entity: str) -> Sequence[Message]:
        """Return the records that follow from the current configuration, quotas or credentials of an entity."""
        if config_resource(entity) is None and not is_quota_entity(entity):
            return ()
        try:
            values = await read_config(self._zk, entity)
            records = config_change_records(image, entity, values or {})
        except InvalidZnodeError as error:
            self._report_damaged(error.path, error)
            return ()
        if values is None:
            self._store.znode_cache.configs.pop(entity, None)
        else:
            self._store.znode_cache.configs[entity] = values
        return records

    async def _read_isr_changes(self, image: ClusterImage) -> Sequence[Message]:
        """Read the states that leaders without AlterPartition (KIP-497) have written."""
        notifications = [f"{paths.ISR_CHANGES}/{name}" for name in await self._children(paths.ISR_CHANGES)]
        partitions: dict[TopicPartition, None] = {}
        for path in notifications:
            partitions.update(dict.fromkeys(await self._read_notification(path, decode_partitions) or ()))
        external = ExternalChanges()
        records: list[Message] = []
        for topic, index in partitions:
            known = image.partition(topic, index)
            found = None if known is None else await read_state(self._zk, topic, index)
            if known is not None and found is not None and found.version > known.partition_epoch:
                external.states[topic, index] = found
                assignment = Assignment(known.replicas, known.adding_replicas, known.removing_replicas)
                records += state_change_records(image.topics[topic].id, index, registered(assignment, found))
        for path in notifications:
            await self._store.try_write(Delete(path))
        self._store.external_changes = external
        return records

    async def _read_log_dir_events(self, image: ClusterImage) -> Sequence[Message]:
        notifications = [f"{paths.LOG_DIR_EVENTS}/{name}" for name in await self._children(paths.LOG_DIR_EVENTS)]
        brokers = {await self._read_notification(path, decode_log_dir_event) for path in notifications}
        for path in notifications:
            await self._store.try_write(Delete(path))
        failed = sorted(broker for broker in brokers if broker is not None)
        if failed:
            self._log_dir_failed(failed)
        return ()

    # -- reading ------------------------------------------------------------------------------------------------------

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._zk.children(path, self._watch(path))
        except NoNodeError:
            self._unwatch(path)
            return []

    async def _read_notification(self, path: str, decode: Callable[[str, bytes], Notification]) -> Notification | None:
        """Return the content of a notification; None if it is missing or damaged."""
        try:
            return decode(path, (await self._zk.get(path))[0])
        except NoNodeError:
            return None
        except InvalidZnodeError as error:
            self._report_damaged(path, error)
            return None

    def _report_damaged(self, path: str, error: Exception) -> None:
        self._reporter.error("znode cannot be read and is ignored", path=path, exc_info=error)


def _is_reassigning_to(image: ClusterImage, partition: TopicPartition, replicas: Replicas) -> bool:
    """Return whether a reassignment of the partition to exactly these replicas is in progress."""
    found = image.partition(*partition)
    if found is None or not found.reassigning:
        return False
    return tuple(replica for replica in found.replicas if replica not in found.removing_replicas) == replicas
