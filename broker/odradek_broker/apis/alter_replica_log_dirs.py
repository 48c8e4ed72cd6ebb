"""AlterReplicaLogDirs (key 34): move replicas of this broker to other log directories of its own (KIP-113).

Versions: v2 is flexible.
Behaviour: responds when the moves have begun; all of them begin, even if the client disconnects. For a partition
without a replica here, the broker remembers the directory and uses it if it gets a replica later.
Differences from Kafka: none.
"""

from __future__ import annotations

import os
from collections.abc import Generator

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Sliced, run_in_slices
from odradek_broker.security.authorizer import Operation
from odradek_log.directory import LogDirectory
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse

DIRECTORY_NAME_MAX = 255
ELEMENTS_OF_A_MOVE = 20
"""A move creates files, and takes as long as so many elements of other requests."""
FUTURE_NAME = "{}-{}.00000000000000000000000000000000-future"
"""The name of a future log's directory, with zeros for a random id; Kafka counts its characters."""


def handle(ctx: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse | Sliced:
    if not ctx.may_cluster(Operation.ALTER):
        return error_response(ctx, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    response = run_in_slices(_respond(ctx, request))
    if isinstance(response, Sliced):
        return Sliced(ctx.broker.alter_log_dirs_manager.run_to_end(response.response))
    return response


def _respond(ctx: Context, request: AlterReplicaLogDirsRequest) -> Generator[int, None, AlterReplicaLogDirsResponse]:
    known = {os.path.abspath(each.path): each for each in ctx.broker.log_directories.all}
    errors: dict[tuple[str, int], ErrorCode] = {}
    for wanted in request.dirs:
        for topic in wanted.topics:
            for index in topic.partitions:
                errors[topic.name, index] = _move(ctx, known.get(wanted.path), topic.name, index)
                yield ELEMENTS_OF_A_MOVE
    return _response(errors)


def _move(ctx: Context, directory: LogDirectory | None, topic: str, index: int) -> ErrorCode:
    broker = ctx.broker
    if len(FUTURE_NAME.format(topic, index)) > DIRECTORY_NAME_MAX:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    if directory is None:
        return ErrorCode.LOG_DIR_NOT_FOUND
    if directory.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    partition = broker.partitions.get(topic, index)
    if partition is None:
        broker.replica_logs.prefer_directory(topic, index, directory)
        exists = broker.image.partition(topic, index) is not None
        return ErrorCode.REPLICA_NOT_AVAILABLE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.error == ErrorCode.KAFKA_STORAGE_ERROR:
        return ErrorCode.KAFKA_STORAGE_ERROR
    try:
        broker.alter_log_dirs_manager.begin(partition, directory)
    except OSError as error:
        event = "replica cannot be moved to the log directory"
        broker.log.error(event, partition=f"{topic}-{index}", directory=directory.path, error=str(error))
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NONE


def _response(errors: dict[tuple[str, int], ErrorCode]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult] = {}
    for (name, index), error in errors.items():
        topic = topics.setdefault(name, AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(name))
        topic.partitions.append(AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(index, error))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))


def error_response(ctx: Context, request: AlterReplicaLogDirsRequest, error: ErrorCode) -> AlterReplicaLogDirsResponse:
    return _response(
        {(topic.name, index): error for wanted in request.dirs for topic in wanted.topics for index in topic.partitions}
    )


API = Api(AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse, handle, error_response=error_response)
