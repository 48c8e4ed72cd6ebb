"""TxnOffsetCommit: what a producer may commit for a group within its transaction (KIP-98, KIP-447).

Owns the checks in Kafka's order and the records that they lead to. Leaves to the log whether the producer is fenced and
has a transaction, and what becomes of the records to `offset_store`. Topics exist: the API module sees to that.
"""

from __future__ import annotations

from odradek_broker.groups.core.classic_group import ClassicGroup
from odradek_broker.groups.core.classic_join import member_error
from odradek_broker.groups.core.group_records import CoordinatorRecord, OffsetRecord
from odradek_broker.groups.core.group_step import NO_MEMBER
from odradek_broker.groups.core.offset_requests import too_large
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

TopicAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
PartitionAnswer = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


def commit_error(group: ClassicGroup | None, request: TxnOffsetCommitRequest) -> ErrorCode:
    """May this commit be taken? Before v3 requests name no member, and none is asked for; nor does it matter whether
    the group rebalances: the transaction stands or falls as a whole."""
    generation = request.generation_id
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if generation < 0 and group.is_empty:
        return ErrorCode.NONE
    if generation >= 0 or request.member_id != NO_MEMBER or request.group_instance_id is not None:
        error = member_error(group, request.member_id, request.group_instance_id)
        if error:
            return error
        if generation != group.generation:
            return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def commit(
    request: TxnOffsetCommitRequest, metadata_max_bytes: int, wall_ms: int
) -> tuple[list[CoordinatorRecord], TxnOffsetCommitResponse]:
    """The records of a commit that `commit_error` has let pass, and its answer once they are written."""
    records: list[CoordinatorRecord] = []
    response = TxnOffsetCommitResponse()
    for topic in request.topics:
        answer = TopicAnswer(name=topic.name)
        response.topics.append(answer)
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
                where = (request.group_id, topic.name, partition.partition_index)
                records.append(OffsetRecord(*where, value, request.producer_id))
            answer.partitions.append(PartitionAnswer(partition.partition_index, error))
    return records, response
