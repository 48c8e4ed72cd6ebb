"""Topics that a client's request creates indirectly: auto-created and internal topics.

Leaves the configurations of internal topics to `internal_topics`, and creation to the controller (Kafka's
AutoTopicCreationManager).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from odradek_broker.metadata.broker_state import BrokerState
from odradek_broker.metadata.internal_topics import TOPICS, CreationFailureLog
from odradek_broker.metadata.view import INTERNAL_TOPICS
from odradek_controller.commands.topic_names import invalid_topic_name
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse


class TopicCreationState(BrokerState, Protocol):
    """The part of a broker's state that the creation of topics uses."""

    @property
    def creation_failures(self) -> CreationFailureLog: ...


async def create_missing(state: TopicCreationState, names: Iterable[str]) -> dict[str, ErrorCode]:
    """Create those of the topics that do not exist; return the error of each, NONE if it exists now. Log the reason why
    an internal topic cannot be created, because clients get only COORDINATOR_NOT_AVAILABLE."""
    errors: dict[str, ErrorCode] = {}
    wanted = []
    for name in names:
        if name in state.image.topics:
            errors[name] = ErrorCode.NONE
        elif invalid_topic_name(name) is not None:
            errors[name] = ErrorCode.INVALID_TOPIC_EXCEPTION
        else:
            wanted.append(_creatable(state, name))
    if wanted:
        request = CreateTopicsRequest(topics=wanted)
        response: CreateTopicsResponse = await state.controller_channel.submit(request)
        for topic in response.topics:
            exists = topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            error = errors[topic.name] = ErrorCode.NONE if exists else ErrorCode(topic.error_code)
            if error and topic.name in INTERNAL_TOPICS:
                state.creation_failures.report(topic.name, error, topic.error_message)
    return errors


async def ensure_internal_topic(state: TopicCreationState, name: str) -> ErrorCode:
    """Create an internal topic unless it exists. Return COORDINATOR_NOT_AVAILABLE if that fails: the client retries."""
    assert name in INTERNAL_TOPICS
    error = (await create_missing(state, [name]))[name]
    return ErrorCode.NONE if error == ErrorCode.NONE else ErrorCode.COORDINATOR_NOT_AVAILABLE


def _creatable(state: TopicCreationState, name: str) -> CreateTopicsRequest.CreatableTopic:
    config = state.config
    internal = TOPICS.get(name)
    if internal is None:
        return _topic(name, config.integer("num.partitions"), config.integer("default.replication.factor"), {})
    return _topic(
        name,
        config.integer(internal.partitions),
        config.integer(internal.replication_factor),
        internal.overrides(config),
    )


def _topic(
    name: str, partitions: int, replication_factor: int, configs: dict[str, str]
) -> CreateTopicsRequest.CreatableTopic:
    return CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreateTopicsRequest.CreatableTopicConfig(key, value) for key, value in configs.items()],
    )
