"""Topics on their way out: those that brokers have been told to delete, and whose replicas are still there.

A topic's nodes go when all replicas are known to be gone; a broker that is down meanwhile is told when it is back, and
one that could not delete a replica when it has registered again. Pure. Source: TopicDeletionManager of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from odradek_wire.uuid import Uuid

from ..image import ClusterImage, TopicImage
from .load import NO_STATE
from .znodes import TopicPartition


class TopicDeletionManager:
    """Of one term. `begun` is called with topics that brokers are to be told of now, by whoever tells brokers; `ended`
    when nobody holds some topic any more."""

    def __init__(self) -> None:
        self.begun: Callable[[Sequence[TopicImage]], None] = _nobody
        self.ended: Callable[[], None] = _nothing
        self._names: dict[str, Uuid] = {}
        self._replicas: dict[Uuid, set[tuple[int, int]]] = {}

    def __contains__(self, topic_id: Uuid) -> bool:
        """Whether the topic's deletion has begun: brokers are told nothing else of it any more."""
        return topic_id in self._replicas

    def begin(self, topics: Sequence[TopicImage]) -> None:
        """Nobody holds a partition that has not begun."""
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
            self.begun(new)

    def of(self, broker_id: int) -> list[TopicPartition]:
        """What a broker has still to delete."""
        return sorted(
            (name, index)
            for name, topic_id in self._names.items()
            for index, replica in self._replicas[topic_id]
            if replica == broker_id
        )

    def deleted(self, broker_id: int, places: Collection[TopicPartition]) -> None:
        """The broker has deleted these."""
        ended = False
        for name, index in places:
            topic_id = self._names.get(name)
            if topic_id is not None and (index, broker_id) in self._replicas[topic_id]:
                self._replicas[topic_id].remove((index, broker_id))
                ended = ended or not self._replicas[topic_id]
        if ended:
            self.ended()

    def without(self, image: ClusterImage) -> ClusterImage:
        """The image as it is without them."""
        if not self._replicas:
            return image
        by_id = {topic_id: topic for topic_id, topic in image.topics_by_id.items() if topic_id not in self}
        return replace(image, topics={topic.name: topic for topic in by_id.values()}, topics_by_id=by_id)

    def is_done(self, topic: TopicImage) -> bool:
        """Whether nobody holds anything of it any more."""
        return self._replicas.get(topic.id) == set()

    def keep_to(self, image: ClusterImage) -> None:
        """Topics that are not there any more are forgotten."""
        for name, topic_id in list(self._names.items()):
            if topic_id not in image.topics_by_id:
                del self._names[name], self._replicas[topic_id]


def _nobody(topics: Sequence[TopicImage]) -> None:
    """Whoever comes to tell brokers finds them in `of`."""


def _nothing() -> None:
    """Whoever looks first sees what `is_done`."""
