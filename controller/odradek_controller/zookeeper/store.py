"""The metadata store in ZooKeeper: records become the nodes of a Kafka 3.9 cluster.

One store is one term of one controller. It reads everything when it is opened, and from then on writes what follows
from each change of the image, fenced by the controller's epoch. What a change does to the nodes is `plan`'s, how it is
written `fenced`'s; which records have a place here at all, is in `places`.
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
    """`lost` is called when this controller cannot write any more: its term is over, and the store useless.

    What the watches have seen of others' doing is handed over in `nodes` and `seen` just before the records that follow
    from it are appended.
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
        """The image of all that is stored; topics of before topic ids have got theirs.

        Raises NotControllerError when the term ends meanwhile, InvalidZnodeError if the cluster cannot be read.
        """
        self._image = await self._retried(self._open)
        return self._image

    async def _open(self) -> ClusterImage:
        if await read_features(self._zk) is None:
            await self._enable_features()
        loaded = await load(self._zk, self._term.epoch)
        self.znode_cache = loaded.znode_cache
        image = await self._with_ids(loaded)
        for error in loaded.damaged:
            self._damaged(error)
        return image

    def _damaged(self, error: InvalidZnodeError) -> None:
        self._reporter.error("a znode cannot be read, and is left alone", path=error.path, exc_info=error)

    async def _enable_features(self) -> None:
        """As Kafka's first controller since 2.7: from here on there are features, though none to speak of."""
        if not await self.try_write(Create(paths.FEATURE, encode_features({}))):
            await self.try_write(Set(paths.FEATURE, encode_features({})))

    async def _with_ids(self, loaded: LoadedCluster) -> ClusterImage:
        topics = dict(loaded.image.topics)
        for name, node in loaded.without_id.items():
            topic_id = random_uuid(self._randbytes)
            named = FoundTopic(name, TopicZnode(topic_id, node.partitions), self.znode_cache.topics[name] + 1)
            await self._writer.write([Set(paths.topic(name), named.node.encode(), named.version - 1)])
            self.znode_cache.topics[name] = named.version
            try:
                topics[name] = TopicImage(topic_id, name, await read_partitions(self._zk, named))
            except InvalidZnodeError as error:
                self.znode_cache.unreadable.add(name)
                self._damaged(error)
        by_id = {topic.id: topic for topic in topics.values()}
        return replace(loaded.image, topics=topics, topics_by_id=by_id)

    async def append(self, records: Sequence[Message], levels: Levels) -> Appended:
        """Raises NotControllerError, and RefusedRecordError for what has no place in ZooKeeper."""
        external, self.external_changes = self.external_changes, ExternalChanges()
        check_storable(records)
        delta = replay(self._image, records, offset=self._image.offset + len(records), epoch=self._term.epoch)
        await self._look_for_folders(delta, external)
        operations = ZnodeOperations(self._term.epoch, self.znode_cache, external, _given_to(records))
        operations.add(delta)
        await self._writer.write(operations.ops, self._max_bytes)
        operations.done()
        self._image = delta.image
        return Appended(delta.image.offset, self._term.epoch)

    async def try_write(self, op: Op) -> bool:
        """Change a node that others write, too; whether it was still there to be changed. Raises NotControllerError."""
        return await self._writer.try_write(op)

    async def _look_for_folders(self, delta: MetadataDelta, external: ExternalChanges) -> None:
        """A partition without a state may have a node, if a controller fell while it began the partition."""
        changed = [topic for key, topic in delta.before.topics_by_id.items() if key in delta.partitions]
        for topic in (*changed, *delta.deleted_topics.values()):
            stateless = [
                index for index, partition in enumerate(topic.partitions) if partition.partition_epoch == NO_STATE
            ]
            if stateless and topic.name not in external.gone:
                for path in (
                    paths.partitions(topic.name),
                    *(paths.partition(topic.name, index) for index in stateless),
                ):
                    if await self._retried(partial(self._zk.exists, path)) is not None:
                        external.folders.add(path)

    async def _retried(self, read: Callable[[], Awaitable[Found]]) -> Found:
        """As soon as there is a connection; NotControllerError when the session is over."""
        while True:
            try:
                await self._zk.until_connected()
                return await read()
            except ConnectionLossError:
                continue
            except SessionExpiredError as error:
                raise self._writer.lose("the session is over") from error

    @property
    def next_offset(self) -> int:
        """Offsets only count the records of this term. (A broker's epoch is its node's czxid.)"""
        return self._image.offset + 1

    def end(self) -> None:
        """The term was given up: whatever is appended from now on raises NotControllerError."""
        self._writer.end()

    def quorum(self) -> QuorumState:
        """There is none to speak of: the controller is whoever holds `/controller`."""
        offset = self._image.offset
        return QuorumState(self._node_id, self._term.epoch, offset, offset, (), self._wall_ms())

    def applied(self, image: ClusterImage) -> None:
        """Nothing to do: every change is a whole one."""

    async def close(self) -> None:
        """The connection is not ours."""


def _given_to(records: Sequence[Message]) -> int:
    return next((record.broker_id for record in records if isinstance(record, ProducerIdsRecord)), -1)
