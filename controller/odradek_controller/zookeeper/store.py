"""The metadata store of ZooKeeper mode: stores records in the znodes of a Kafka 3.9 cluster.

One store serves one term of one controller. It reads the cluster when it opens, and then writes each change of the
image, fenced by the controller epoch. Leaves the operations of a change to `znode_operations`, fenced writes to
`fenced`, and the list of records that ZooKeeper can store to `record_storage`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from odradek_log.reporting import Reporter
from odradek_wire.message import Message
from odradek_wire.messages.producer_ids_record import ProducerIdsRecord
from odradek_wire.uuid import random_uuid

from ..image import ClusterImage, MetadataDelta, TopicImage
from ..levels import Levels
from ..replay import replay
from ..store import Appended, QuorumState
from . import paths
from .client import ConnectionLossError, Create, Op, SessionExpiredError, Set, ZooKeeper
from .fenced import MAX_BYTES, ControllerTerm, FencedWriter
from .json_text import InvalidZnodeError
from .load import NO_STATE, FoundTopic, LoadedCluster, ZnodeCache, load, read_features, read_partitions
from .record_storage import check_storable
from .znode_operations import ExternalChanges, ZnodeOperations
from .znodes import TopicZnode, encode_features

Found = TypeVar("Found")


class ZooKeeperStore:
    """The controller's `MetadataStore` in ZooKeeper mode. Calls `lost` with the reason when its term ends.

    The znode readers put the changes of other clients into `znode_cache` and `external_changes` before the controller
    appends the records that follow from them.
    """

    def __init__(
        self,
        zk: ZooKeeper,
        term: ControllerTerm,
        *,
        node_id: int,
        lost: Callable[[str], None],
        wall_ms: Callable[[], int],
        randbytes: Callable[[int], bytes],
        reporter: Reporter,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._zk = zk
        self._term = term
        self._node_id = node_id
        self._wall_ms = wall_ms
        self._randbytes = randbytes
        self._reporter = reporter
        self._max_bytes = max_bytes
        self._writer = FencedWriter(zk, term, lost)
        self._image = ClusterImage()
        self.znode_cache = ZnodeCache()
        self.external_changes = ExternalChanges()

    async def open(self) -> ClusterImage:
        """Return the image of the cluster, after giving an id to each topic that has none.

        Raises NotControllerError if the term ends first, InvalidZnodeError for the features, the cluster id or the
        producer ids. Other damaged znodes are logged and ignored.
        """
        self._image = await self._retried(self._open)
        return self._image

    async def _open(self) -> ClusterImage:
        if await read_features(self._zk) is None:
            await self._enable_features()
        loaded = await load(self._zk, self._term.epoch)
        self.znode_cache = loaded.znode_cache
        image = await self._add_topic_ids(loaded)
        for error in loaded.damaged:
            self._report_damaged(error)
        return image

    def _report_damaged(self, error: InvalidZnodeError) -> None:
        self._reporter.error("znode cannot be read and is ignored", path=error.path, exc_info=error)

    async def _enable_features(self) -> None:
        """Create `/feature` without features, as the first controller of Kafka 2.7 or later does."""
        if not await self.try_write(Create(paths.FEATURE, encode_features({}))):
            await self.try_write(Set(paths.FEATURE, encode_features({})))

    async def _add_topic_ids(self, loaded: LoadedCluster) -> ClusterImage:
        """Return the image with the topics that had no id, after writing a new id into each of their znodes."""
        topics = dict(loaded.image.topics)
        for name, node in loaded.without_id.items():
            topic_id = random_uuid(self._randbytes)
            found = FoundTopic(name, TopicZnode(topic_id, node.partitions), self.znode_cache.topic_versions[name] + 1)
            await self._writer.write([Set(paths.topic(name), found.node.encode(), found.version - 1)])
            self.znode_cache.topic_versions[name] = found.version
            try:
                topics[name] = TopicImage(topic_id, name, await read_partitions(self._zk, found))
            except InvalidZnodeError as error:
                self.znode_cache.unreadable.add(name)
                self._report_damaged(error)
        by_id = {topic.id: topic for topic in topics.values()}
        return replace(loaded.image, topics=topics, topics_by_id=by_id)

    async def append(self, records: Sequence[Message], levels: Levels) -> Appended:
        """As `MetadataStore.append`. Also raises UnsupportedRecordError for a record that ZooKeeper cannot store."""
        external, self.external_changes = self.external_changes, ExternalChanges()
        check_storable(records)
        delta = replay(self._image, records, offset=self._image.offset + len(records), epoch=self._term.epoch)
        await self._find_partition_folders(delta, external)
        operations = ZnodeOperations(self._term.epoch, self.znode_cache, external, _producer_ids_broker(records))
        operations.add(delta)
        await self._writer.write(operations.ops, self._max_bytes)
        operations.update_cache()
        self._image = delta.image
        return Appended(delta.image.offset, self._term.epoch)

    async def try_write(self, op: Op) -> bool:
        """As `FencedWriter.try_write`."""
        return await self._writer.try_write(op)

    async def _find_partition_folders(self, delta: MetadataDelta, external: ExternalChanges) -> None:
        """Find znodes of partitions without a state: an earlier controller may have ended between two writes."""
        changed = [topic for key, topic in delta.before.topics_by_id.items() if key in delta.partitions]
        for topic in (*changed, *delta.deleted_topics.values()):
            stateless = [
                index for index, partition in enumerate(topic.partitions) if partition.partition_epoch == NO_STATE
            ]
            if stateless and topic.name not in external.deleted_topics:
                for path in (
                    paths.partitions(topic.name),
                    *(paths.partition(topic.name, index) for index in stateless),
                ):
                    if await self._retried(partial(self._zk.exists, path)) is not None:
                        external.folders.add(path)

    async def _retried(self, read: Callable[[], Awaitable[Found]]) -> Found:
        """Read, and read again after a lost connection. Raises NotControllerError if the session has ended."""
        while True:
            try:
                await self._zk.until_connected()
                return await read()
            except ConnectionLossError:
                continue
            except SessionExpiredError as error:
                raise self._writer.lose("the session has ended") from error

    @property
    def next_offset(self) -> int:
        """One more than the number of records in this term. In ZooKeeper mode it is not the epoch of a new broker."""
        return self._image.offset + 1

    def end(self) -> None:
        """End the term: every later `append` raises NotControllerError."""
        self._writer.end()

    def quorum(self) -> QuorumState:
        """Return a quorum without voters: ZooKeeper mode has none."""
        offset = self._image.offset
        return QuorumState(self._node_id, self._term.epoch, offset, offset, (), self._wall_ms())

    def applied(self, image: ClusterImage) -> None:
        """Do nothing: ZooKeeper needs no snapshots."""

    async def close(self) -> None:
        """Do nothing: the owner of the connection closes it."""


def _producer_ids_broker(records: Sequence[Message]) -> int:
    return next((record.broker_id for record in records if isinstance(record, ProducerIdsRecord)), -1)
