"""OffsetCommit, OffsetFetch and OffsetDelete: what a group may say about its offsets, and what it is told.

Owns their checks in Kafka's order and the records that they lead to. Topics come with both name and id, and exist:
the API modules see to that, and to authorization. Leaves the state of offsets to `offset_store`.
"""

from __future__ import annotations

from odradek_broker.groups.core.classic_group import ClassicGroup, ClassicGroupState
from odradek_broker.groups.core.classic_join import member_error
from odradek_broker.groups.core.committed_offset import CommittedOffset, GroupTopicPartition
from odradek_broker.groups.core.group_records import CoordinatorRecord, OffsetRecord
from odradek_broker.groups.core.group_step import NO_MEMBER
from odradek_broker.groups.core.offset_store import OffsetStore
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from odradek_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

DEFAULT_RETENTION = -1
GROUP_ID_NOT_FOUND_FROM = 9
"""KIP-848: this version of OffsetCommit is the first whose clients know the error."""

Partition = OffsetFetchResponse.OffsetFetchResponsePartitions


def commit_error(group: ClassicGroup | None, request: OffsetCommitRequest, api_version: int) -> ErrorCode:
    """May this commit be taken? Without a generation it comes from an admin client or a consumer that assigns its
    partitions itself, and nobody else may be in the group then."""
    generation = request.generation_id_or_member_epoch
    if group is None:
        if generation < 0:
            return ErrorCode.NONE
        return ErrorCode.GROUP_ID_NOT_FOUND if api_version >= GROUP_ID_NOT_FOUND_FROM else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and group.is_empty:
        return ErrorCode.NONE
    if generation >= 0 or request.member_id != NO_MEMBER or request.group_instance_id is not None:
        error = member_error(group, request.member_id, request.group_instance_id)
        if error:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
    elif not group.is_empty:
        return ErrorCode.UNKNOWN_MEMBER_ID
    # The member knows the new generation, but nobody has an assignment in it yet.
    if group.is_in(ClassicGroupState.COMPLETING_REBALANCE):
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def commit(
    request: OffsetCommitRequest, metadata_max_bytes: int, wall_ms: int
) -> tuple[list[CoordinatorRecord], OffsetCommitResponse]:
    """The records of a commit that `commit_error` has let pass, and its answer once they are written."""
    records: list[CoordinatorRecord] = []
    response = OffsetCommitResponse()
    retention_ms = request.retention_time_ms
    expire_ms = -1 if retention_ms == DEFAULT_RETENTION else wall_ms + retention_ms
    for topic in request.topics:
        answer = OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(answer)
        for partition in topic.partitions:
            metadata = partition.committed_metadata or ""
            error = ErrorCode.NONE
            if too_large(metadata, metadata_max_bytes):
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                # Version 1 let the client say when.
                given_ms = partition.commit_timestamp
                value = OffsetCommitValue(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=metadata,
                    commit_timestamp=wall_ms if given_ms == -1 else given_ms,
                    expire_timestamp=expire_ms,
                    topic_id=topic.topic_id,
                )
                records.append(OffsetRecord(request.group_id, topic.name, partition.partition_index, value))
            answer.partitions.append(
                OffsetCommitResponse.OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=error
                )
            )
    return records, response


def fetch(
    store: OffsetStore, request: OffsetFetchRequest.OffsetFetchRequestGroup, *, require_stable: bool = False
) -> OffsetFetchResponse.OffsetFetchResponseGroup:
    """The offsets asked for, -1 where there is none; topics null asks for all that there are. A group that does not
    exist simply has none. With `require_stable`, none where a transaction that is open may commit another (KIP-447)."""
    offsets = store.of_group(request.group_id)
    watched = require_stable and store.pending.has_group(request.group_id)
    response = OffsetFetchResponse.OffsetFetchResponseGroup(group_id=request.group_id)
    if request.topics is None:
        for name, partitions in offsets.items():
            found = [
                _unstable(partition)
                if watched and store.pending.is_pending(request.group_id, name, partition)
                else _fetched(partition, offset)
                for partition, offset in partitions.items()
            ]
            response.topics.append(OffsetFetchResponse.OffsetFetchResponseTopics(name=name, partitions=found))
        return response
    for topic in request.topics:
        committed = offsets.get(topic.name, {})
        answers = []
        for index in topic.partition_indexes:
            if watched and store.pending.is_pending(request.group_id, topic.name, index):
                answers.append(_unstable(index))
                continue
            one = committed.get(index)
            if one is not None and not one.is_of(topic.topic_id):
                one = None
            answers.append(_fetched(index, one))
        response.topics.append(
            OffsetFetchResponse.OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=answers)
        )
    return response


def delete_error(group: ClassicGroup | None) -> ErrorCode:
    """May offsets of this group be deleted? Not while members are in it of whose subscriptions we know nothing."""
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if not group.is_empty and not group.uses_consumer_protocol:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def delete(
    store: OffsetStore, group: ClassicGroup, request: OffsetDeleteRequest
) -> tuple[list[CoordinatorRecord], OffsetDeleteResponse]:
    """Tombstones for what is there; deleting what is not there succeeds as well."""
    records: list[CoordinatorRecord] = []
    response = OffsetDeleteResponse()
    for topic in request.topics:
        subscribed = group.is_subscribed_to(topic.name)
        answer = OffsetDeleteResponse.OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(answer)
        for partition in topic.partitions:
            index = partition.partition_index
            answer.partitions.append(
                OffsetDeleteResponse.OffsetDeleteResponsePartition(
                    partition_index=index,
                    error_code=ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE,
                )
            )
            where = GroupTopicPartition(request.group_id, topic.name, index)
            if not subscribed and (store.get(*where) is not None or store.pending.is_pending(*where)):
                records.append(OffsetRecord(request.group_id, topic.name, index, None))
    return records, response


def tombstones(store: OffsetStore, group_id: str) -> list[CoordinatorRecord]:
    """What deletes every offset of a group, those of open transactions too."""
    committed = [
        GroupTopicPartition(group_id, topic, partition)
        for topic, partitions in store.of_group(group_id).items()
        for partition in partitions
    ]
    pending = [where for where in store.pending.of_group(group_id) if store.get(*where) is None]
    return [OffsetRecord(*where, None) for where in committed + pending]


def too_large(metadata: str, max_bytes: int) -> bool:
    """`offset.metadata.max.bytes` is compared with the length of a Java string: UTF-16 units, not bytes."""
    return len(metadata) + sum(char > "\uffff" for char in metadata) > max_bytes


def _unstable(index: int) -> Partition:
    return Partition(
        partition_index=index,
        committed_offset=-1,
        committed_leader_epoch=-1,
        metadata="",
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )


def _fetched(index: int, offset: CommittedOffset | None) -> Partition:
    if offset is None:
        return Partition(partition_index=index, committed_offset=-1, committed_leader_epoch=-1, metadata="")
    return Partition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
    )
