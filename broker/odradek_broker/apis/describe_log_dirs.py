"""DescribeLogDirs (key 35): the log directories of this broker, with the replicas in them and their sizes (KIP-113).

Versions: v2 is flexible, v3 has an error of the whole request, v4 total and usable bytes (KIP-827), v5 cordoned
directories (KIP-1066).
Behaviour: an offline directory has KAFKA_STORAGE_ERROR; a future replica is listed in the directory that it moves to. A
response with many replicas is made in slices, each replica with its size at that time.
Differences from Kafka: no directory can be cordoned.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Sliced, run_in_slices
from odradek_broker.replication.partition import Partition
from odradek_broker.security.authorizer import Operation
from odradek_log.directory import LogDirectory
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

DescribeLogDirsResult = DescribeLogDirsResponse.DescribeLogDirsResult
DescribeLogDirsTopic = DescribeLogDirsResponse.DescribeLogDirsTopic
DescribeLogDirsPartition = DescribeLogDirsResponse.DescribeLogDirsPartition
UNKNOWN_BYTES = -1


def handle(ctx: Context, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse | Sliced:
    if not ctx.may_cluster(Operation.DESCRIBE):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return run_in_slices(_respond(ctx, request))


def _respond(ctx: Context, request: DescribeLogDirsRequest) -> Generator[int, None, DescribeLogDirsResponse]:
    if request.topics is None:
        found = list(ctx.broker.partitions)
    else:
        named = dict.fromkeys((topic.topic, index) for topic in request.topics for index in topic.partitions)
        found = [partition for key in named if (partition := ctx.broker.partitions.get(*key)) is not None]
    found.sort(key=lambda partition: (partition.topic, partition.index))
    response = DescribeLogDirsResponse()
    for directory in ctx.broker.log_directories.all:
        response.results.append((yield from _describe(directory, found)))
    return response


def _describe(directory: LogDirectory, partitions: list[Partition]) -> Generator[int, None, DescribeLogDirsResult]:
    path = os.path.abspath(directory.path)
    if directory.offline:
        return DescribeLogDirsResult(ErrorCode.KAFKA_STORAGE_ERROR, path)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for partition in partitions:
        found = _in_directory(partition, directory)
        if found is not None:
            topics.setdefault(partition.topic, DescribeLogDirsTopic(partition.topic)).partitions.append(found)
        yield 1
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
