"""DescribeLogDirs (key 35): the log directories of this broker, with the replicas in them and their sizes (KIP-113).

Versions: v2 is flexible, v3 has an error of the whole request, v4 total and usable bytes (KIP-827), v5 cordoned
directories (KIP-1066).
Behaviour: an offline directory has KAFKA_STORAGE_ERROR; a future replica is listed in the directory that it moves to.
Differences from Kafka: no directory can be cordoned.
"""

from __future__ import annotations

import os
import shutil

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.replication.partition import Partition
from odradek_broker.security.authorizer import Operation
from odradek_log.directory import LogDirectory
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

DescribeLogDirsResult = DescribeLogDirsResponse.DescribeLogDirsResult
DescribeLogDirsTopic = DescribeLogDirsResponse.DescribeLogDirsTopic
DescribeLogDirsPartition = DescribeLogDirsResponse.DescribeLogDirsPartition
UNKNOWN_BYTES = -1


def handle(ctx: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    if not ctx.may_cluster(Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        results=[_describe(ctx, directory, wanted) for directory in ctx.broker.log_directories.all]
    )


def _describe(ctx: Context, directory: LogDirectory, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    path = os.path.abspath(directory.path)
    if directory.offline:
        return DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in sorted(ctx.broker.partitions, key=lambda each: (each.topic, each.index)):
        if wanted is None or (partition.topic, partition.index) in wanted:
            found = _in_directory(partition, directory)
            if found is not None:
                topics.setdefault(partition.topic, DescribeLogDirsTopic(partition.topic)).partitions.append(found)
    try:
        usage = shutil.disk_usage(directory.path)
        total, usable = usage.total, usage.free
    except OSError:
        total = usable = UNKNOWN_BYTES
    return DescribeLogDirsResult(ErrorCode.NONE, path, list(topics.values()), total, usable)


def _in_directory(partition: Partition, directory: LogDirectory) -> DescribeLogDirsPartition | None:
    """Return the replica in this directory, or the future replica; None if neither is here."""
    log, future = partition.served_log, partition.future
    if log is None or log.offline_cause is not None:
        return None
    if partition.directory is directory:
        return DescribeLogDirsPartition(partition.index, log.size_bytes, _lag(partition), False)
    if future is not None and directory.futures.get((partition.topic, partition.index)) is future:
        return DescribeLogDirsPartition(
            partition.index, future.size_bytes, log.log_end_offset - future.log_end_offset, True
        )
    return None


def _lag(partition: Partition) -> int:
    """Return how far the log is behind the high watermark: 0 on a leader."""
    return max(partition.high_watermark - partition.log_end_offset, 0)


API = Api(DescribeLogDirsRequest, DescribeLogDirsResponse, handle)
