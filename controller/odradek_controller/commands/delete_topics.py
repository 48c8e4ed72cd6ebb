"""DeleteTopics, by name or by id. Refuses an entry that has both or neither, or that repeats the topic of another."""

from __future__ import annotations

from collections import Counter

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek_wire.messages.remove_topic_record import RemoveTopicRecord
from odradek_wire.uuid import ZERO_UUID, Uuid

from ..image import ClusterImage, TopicImage
from .context import CommandContext, Refusal

DeletableTopicResult = DeleteTopicsResponse.DeletableTopicResult
Wanted = tuple[str | None, Uuid]

_UNKNOWN_NAME = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
_UNKNOWN_ID = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
_DISABLED = Refusal(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
_NAMED_TWICE = Refusal(ErrorCode.INVALID_REQUEST, "The provided topic name maps to an ID that was already supplied.")


def request_for_all(image: ClusterImage) -> DeleteTopicsRequest:
    """Return a request that deletes every topic of the image, by id."""
    return DeleteTopicsRequest(
        topics=[DeleteTopicsRequest.DeleteTopicState(None, topic.id) for topic in image.topics.values()]
    )


def delete_topics(
    image: ClusterImage, request: DeleteTopicsRequest, context: CommandContext
) -> tuple[list[Message], DeleteTopicsResponse]:
    wanted: list[Wanted] = [(topic.name, topic.topic_id) for topic in request.topics]
    wanted += [(name, ZERO_UUID) for name in request.topic_names]
    if not context.flag(image, "delete.topic.enable"):
        return [], DeleteTopicsResponse(responses=[_refused(name, topic_id, _DISABLED) for name, topic_id in wanted])
    names = Counter(name for name, topic_id in wanted if name is not None and topic_id == ZERO_UUID)
    ids = Counter(topic_id for name, topic_id in wanted if name is None and topic_id != ZERO_UUID)
    records: list[Message] = []
    results = []
    for name, topic_id in dict.fromkeys(wanted):
        topic = image.topics_by_id.get(topic_id) if name is None else image.topics.get(name)
        if name is None and topic is not None and topic.name in names:
            continue  # the entry with its name has the result
        refusal = _check_entry(name, topic_id, topic, names, ids)
        if refusal is not None:
            named_id = topic.id if refusal is _NAMED_TWICE and topic is not None else topic_id
            results.append(_refused(name, named_id, refusal))
        elif topic is None:
            results.append(_refused(name, topic_id, _UNKNOWN_ID if name is None else _UNKNOWN_NAME))
        else:
            records.append(RemoveTopicRecord(topic.id))
            results.append(DeletableTopicResult(topic.name, topic.id))
    return records, DeleteTopicsResponse(responses=results)


def _check_entry(
    name: str | None, topic_id: Uuid, topic: TopicImage | None, names: Counter[str], ids: Counter[Uuid]
) -> Refusal | None:
    message = None
    if name is None and topic_id == ZERO_UUID:
        message = "Neither topic name nor id were specified."
    elif name is not None and topic_id != ZERO_UUID:
        message = "You may not specify both topic name and topic id."
    elif name is not None and names[name] > 1:
        message = "Duplicate topic name."
    elif name is None and ids[topic_id] > 1:
        message = "Duplicate topic id."
    elif name is not None and topic is not None and topic.id in ids:
        return _NAMED_TWICE
    return None if message is None else Refusal(ErrorCode.INVALID_REQUEST, message)


def _refused(name: str | None, topic_id: Uuid, refusal: Refusal) -> DeletableTopicResult:
    return DeletableTopicResult(name, topic_id, refusal.error, refusal.message)
