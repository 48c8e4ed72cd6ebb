"""The controller of a cluster in ZooKeeper: as any other, but that a topic is deleted when all that hold it are there.

A broker that is down keeps its replicas' files, and when it is back has no image to compare them with: it deletes what
it is told to delete. Until then the wish stands in `/admin/delete_topics`, where Kafka's controllers keep it too, and
the topic stays. Whoever asked is told REQUEST_TIMED_OUT, as by Kafka.
"""

from __future__ import annotations

from collections.abc import Collection

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse

from ..commands.lost_replicas import Place, replicas_found
from ..controller import Controller
from ..image import BrokerRegistration, ClusterImage, TopicImage
from . import paths
from .client import Create
from .load import NO_STATE
from .store import ZooKeeperStore

Result = DeleteTopicsResponse.DeletableTopicResult


def must_wait(image: ClusterImage, topic: TopicImage) -> bool:
    """Whether some broker that holds a replica of the topic is not there. Nobody holds what has not begun."""
    begun = (partition for partition in topic.partitions if partition.partition_epoch != NO_STATE)
    return any(replica not in image.brokers for partition in begun for replica in partition.replicas)


class ZooKeeperController(Controller):
    async def replicas_found(
        self, broker: BrokerRegistration, lost: Collection[Place], served: Collection[Place]
    ) -> None:
        """A broker has said which replicas it serves no more, or again, if it is still in this registration."""

        def decide(image: ClusterImage) -> tuple[list[Message], None]:
            known = image.brokers.get(broker.id)
            if known is None or known.epoch != broker.epoch:
                return [], None
            return replicas_found(image, broker.id, lost, served, self.settings), None

        await self._change(decide)

    async def delete_topics(self, request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        waiting: dict[str, TopicImage] = {}
        if self.settings.flag(self.image, "delete.topic.enable"):
            asked = [self.image.topics.get(name) for name in request.topic_names]
            asked += [
                self.image.topics_by_id.get(one.topic_id) if one.name is None else self.image.topics.get(one.name)
                for one in request.topics
            ]
            waiting = {topic.name: topic for topic in asked if topic is not None and must_wait(self.image, topic)}
        if not waiting:
            return await super().delete_topics(request)
        assert isinstance(self.store, ZooKeeperStore)
        for name in waiting:
            await self.store.tidy(Create(paths.delete_topic(name)))
        ids = {topic.id for topic in waiting.values()}
        response = await super().delete_topics(
            DeleteTopicsRequest(
                [one for one in request.topics if one.name not in waiting and one.topic_id not in ids],
                [name for name in request.topic_names if name not in waiting],
                request.timeout_ms,
            )
        )
        response.responses += [Result(name, topic.id, ErrorCode.REQUEST_TIMED_OUT) for name, topic in waiting.items()]
        return response
