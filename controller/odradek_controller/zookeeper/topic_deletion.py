"""Topic deletion: the topics in deletion, and the replicas that brokers must still delete.

The controller deletes the znodes of a topic when all its replicas are deleted. A broker that was down, or that failed
to delete a replica, gets the request when it registers again. Pure. Source: TopicDeletionManager of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from odradek_wire.uuid import Uuid

from ..image import ClusterImage, TopicImage
from .load import NO_STATE
from .znodes import TopicPartition


class TopicDeletionManager:
    """The topic deletions in one term.

    Calls `on_deletion_started` with the topics of new deletions, and `on_replicas_deleted` when a topic has no replica
    left.
    """

    def __init__(self) -> None:
        self.on_deletion_started: Callable[[Sequence[TopicImage]], None] = lambda topics: None
        self.on_replicas_deleted: Callable[[], None] = lambda: None
        self._names: dict[str, Uuid] = {}
        self._replicas: dict[Uuid, set[tuple[int, int]]] = {}

    def __contains__(self, topic_id: Uuid) -> bool:
        """Return whether the deletion of the topic has begun; brokers then get no other requests for the topic."""
        return topic_id in self._replicas

    def begin(self, topics: Sequence[TopicImage]) -> None:
        """Begin to delete the topics that are not in deletion. A partition without a state has no replicas yet."""
        new = [topic for topic in topics if topic.id not in self]
        for topic in new:
            self._names[topic.name] = topic.id
            self._replicas[topic.id] = {
                (index, replica)
                for index, partition in enumerate(topic.partitions)
                if partition.partition_epoch != NO_STATE
                for replica in partition.replicas
            }
        if new:
            self.on_deletion_started(new)

    def remaining_replicas(self, broker_id: int) -> list[TopicPartition]:
        """Return the replicas that the broker must still delete."""
        return sorted(
            (name, index)
            for name, topic_id in self._names.items()
            for index, replica in self._replicas[topic_id]
            if replica == broker_id
        )

    def complete_replica_deletion(self, broker_id: int, partition_refs: Collection[TopicPartition]) -> None:
        """Record that the broker has deleted these replicas."""
        complete = False
        for name, index in partition_refs:
            topic_id = self._names.get(name)
            if topic_id is not None and (index, broker_id) in self._replicas[topic_id]:
                self._replicas[topic_id].remove((index, broker_id))
                complete = complete or not self._replicas[topic_id]
        if complete:
            self.on_replicas_deleted()

    def without_deleted(self, image: ClusterImage) -> ClusterImage:
        """Return the image without the topics whose deletion has begun."""
        if not self._replicas:
            return image
        by_id = {topic_id: topic for topic_id, topic in image.topics_by_id.items() if topic_id not in self}
        return replace(image, topics={topic.name: topic for topic in by_id.values()}, topics_by_id=by_id)

    def is_complete(self, topic: TopicImage) -> bool:
        """Return whether the topic is in deletion and has no replica left."""
        return self._replicas.get(topic.id) == set()

    def forget_removed_topics(self, image: ClusterImage) -> None:
        """Forget the topics that the image does not have."""
        for name, topic_id in list(self._names.items()):
            if topic_id not in image.topics_by_id:
                del self._names[name], self._replicas[topic_id]
