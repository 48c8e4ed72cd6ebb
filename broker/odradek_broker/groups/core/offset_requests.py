"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: their records and responses.

The API modules have authorized the request, completed names and ids of topics, and removed partitions that do not
exist. Leaves the checks of members and generations to each kind of group, and stored offsets to `offset_store`.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from odradek_broker.coordination.core.step import DeferredResponse
from odradek_broker.groups.core.committed_offset import CommittedOffset, GroupTopicPartition
from odradek_broker.groups.core.group import Group
from odradek_broker.groups.core.group_records import CoordinatorRecord, OffsetRecord
from odradek_broker.groups.core.group_step import GroupStep
from odradek_broker.groups.core.offset_store import OffsetStore
from odradek_broker.groups.core.write_errors import group_write_error
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from odradek_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

DEFAULT_RETENTION = -1
GROUP_ID_NOT_FOUND_FROM = 9
"""KIP-848: the first version of OffsetCommit with this error."""

GroupResponse = OffsetFetchResponse.OffsetFetchResponseGroup
TopicResponse = OffsetFetchResponse.OffsetFetchResponseTopics
PartitionResponse = OffsetFetchResponse.OffsetFetchResponsePartitions


# -- commit -------------------------------------------------------------------------------------------------------


def commit_error_without_group(generation: int, api_version: int) -> ErrorCode:
    """Check an OffsetCommit to a group that does not exist: a commit creates the group if it has no generation."""
    if generation < 0:
        return ErrorCode.NONE
    return ErrorCode.GROUP_ID_NOT_FOUND if api_version >= GROUP_ID_NOT_FOUND_FROM else ErrorCode.ILLEGAL_GENERATION


def commit_error_response(request: OffsetCommitRequest, error: ErrorCode) -> OffsetCommitResponse:
    """Return the same error for every partition: the response has no top-level error."""
    response = OffsetCommitResponse()
    for topic in request.topics:
        response.topics.append(
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(partition.partition_index, error)
                    for partition in topic.partitions
                ],
            )
        )
    return response


def commit(step: GroupStep, request: OffsetCommitRequest, deferred: DeferredResponse) -> None:
    """Write the offsets of a valid commit; respond when they are written."""
    response = OffsetCommitResponse()
    retention_ms, wall_ms = request.retention_time_ms, step.now.wall_ms
    expire_ms = -1 if retention_ms == DEFAULT_RETENTION else wall_ms + retention_ms
    for topic in request.topics:
        topic_response = OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(topic_response)
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            error = ErrorCode.NONE
            if too_large(metadata, step.settings.offset_metadata_max_bytes):
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                # Only OffsetCommit v1 has a commit timestamp.
                timestamp_ms = partition.commit_timestamp
                value = OffsetCommitValue(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=metadata,
                    commit_timestamp=wall_ms if timestamp_ms == -1 else timestamp_ms,
                    expire_timestamp=expire_ms,
                    topic_id=topic.topic_id,
                )
                step.records.append(OffsetRecord(request.group_id, topic.name, partition.partition_index, value))
            topic_response.partitions.append(
                OffsetCommitResponse.OffsetCommitResponsePartition(partition.partition_index, error)
            )
    if step.records:
        step.respond_once_written(
            deferred, response, lambda error: commit_error_response(request, group_write_error(error))
        )
    else:
        step.respond(deferred, response)


def commit_in_transaction(
    request: TxnOffsetCommitRequest, metadata_max_bytes: int, wall_ms: int
) -> tuple[list[CoordinatorRecord], TxnOffsetCommitResponse]:
    """Return the records of a valid TxnOffsetCommit, and the response for when they are written."""
    records: list[CoordinatorRecord] = []
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        topic_response = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic(name=topic.name)
        response.topics.append(topic_response)
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            error = ErrorCode.NONE
            if too_large(metadata, metadata_max_bytes):
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                value = OffsetCommitValue(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=metadata,
                    commit_timestamp=wall_ms,
                )
                key = (request.group_id, topic.name, partition.partition_index)
                records.append(OffsetRecord(*key, value, request.producer_id))
            topic_response.partitions.append(
                TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition(partition.partition_index, error)
            )
    return records, response


def too_large(metadata: str, max_bytes: int) -> bool:
    """Compare the metadata's length with offset.metadata.max.bytes as Kafka does: in UTF-16 units, not bytes."""
    return len(metadata) + sum(char > "\uffff" for char in metadata) > max_bytes


# -- fetch --------------------------------------------------------------------------------------------------------


class FetchedOffsets(NamedTuple):
    """The response for one group. `topics` makes each topic when the caller takes it, with the offsets that were
    committed when `fetch` was called."""

    group: GroupResponse
    """The response without its topics."""
    topics: Iterator[TopicResponse]

    @staticmethod
    def failed(group_id: str, error: ErrorCode) -> FetchedOffsets:
        return FetchedOffsets(GroupResponse(group_id=group_id, error_code=error), iter(()))

    def complete(self) -> GroupResponse:
        """Return the response with all topics."""
        self.group.topics.extend(self.topics)
        return self.group


def fetch(
    store: OffsetStore, request: OffsetFetchRequest.OffsetFetchRequestGroup, *, require_stable: bool = False
) -> FetchedOffsets:
    """Return the requested offsets, or all if the topics are null; -1 for a partition without an offset. With
    `require_stable`, a partition with a pending offset of an open transaction gets UNSTABLE_OFFSET_COMMIT (KIP-447)."""
    group_id = request.group_id
    group = GroupResponse(group_id=group_id)
    offsets = store.of_group(group_id)
    if request.topics is None:
        unstable = {(key.topic, key.partition) for key in store.pending.of_group(group_id)} if require_stable else set()
        # Copies, because the offsets may change before the caller takes the topics.
        copied = {topic: dict(partitions) for topic, partitions in offsets.items()}
        return FetchedOffsets(group, _all_topics(copied, unstable))
    unstable_exist = require_stable and store.pending.has_group(group_id)
    topics = []
    for topic in request.topics:
        committed = offsets.get(topic.name, {})
        responses = []
        for index in topic.partition_indexes:
            if unstable_exist and store.pending.is_pending(group_id, topic.name, index):
                responses.append(_unstable(index))
                continue
            offset = committed.get(index)
            if offset is not None and not offset.is_of(topic.topic_id):
                offset = None
            responses.append(_fetched(index, offset))
        topics.append(TopicResponse(name=topic.name, topic_id=topic.topic_id, partitions=responses))
    return FetchedOffsets(group, iter(topics))


def _all_topics(
    offsets: Mapping[str, Mapping[int, CommittedOffset]], unstable: Container[tuple[str, int]]
) -> Iterator[TopicResponse]:
    for name, partitions in offsets.items():
        responses = [
            _unstable(index) if (name, index) in unstable else _fetched(index, offset)
            for index, offset in partitions.items()
        ]
        yield TopicResponse(name=name, partitions=responses)


def _unstable(index: int) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index,
        committed_offset=-1,
        committed_leader_epoch=-1,
        metadata="",
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )


def _fetched(index: int, offset: CommittedOffset | None) -> PartitionResponse:
    if offset is None:
        return PartitionResponse(partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="")
    return PartitionResponse(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )


# -- delete -------------------------------------------------------------------------------------------------------


def delete_error_response(error: ErrorCode) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error)


def delete(
    step: GroupStep, store: OffsetStore, group: Group, request: OffsetDeleteRequest, deferred: DeferredResponse
) -> None:
    """Write tombstones for the offsets that exist. The response has no error for those that do not exist."""
    response = OffsetDeleteResponse()
    for topic in request.topics:
        subscribed = group.is_subscribed_to(topic.name)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        topic_response = OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(topic_response)
        for partition in topic.partitions:
            index = partition.partition_index
            topic_response.partitions.append(OffsetDeleteResponse.OffsetDeleteResponsePartition(index, error))
            key = GroupTopicPartition(request.group_id, topic.name, index)
            if not subscribed and (store.get(*key) is not None or store.pending.is_pending(*key)):
                step.records.append(OffsetRecord(*key, None))
    if step.records:
        step.respond_once_written(deferred, response, lambda error: delete_error_response(group_write_error(error)))
    else:
        step.respond(deferred, response)


def tombstones(store: OffsetStore, group_id: str) -> list[CoordinatorRecord]:
    """Return tombstones for every offset of a group, also for those of open transactions."""
    committed = [
        GroupTopicPartition(group_id, topic, partition)
        for topic, partitions in store.of_group(group_id).items()
        for partition in partitions
    ]
    pending = [key for key in store.pending.of_group(group_id) if store.get(*key) is None]
    return [OffsetRecord(*key, None) for key in committed + pending]
