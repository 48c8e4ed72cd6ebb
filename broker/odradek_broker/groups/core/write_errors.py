"""The errors for a client when a write of the coordinator fails: errors of Produce become errors of the group APIs."""

from __future__ import annotations

from odradek_wire.errors import ErrorCode


def group_write_error(error: ErrorCode) -> ErrorCode:
    """Return the client's error for a failed write of group metadata or offsets, as Kafka 4.3 does."""
    match error:
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION | ErrorCode.NOT_ENOUGH_REPLICAS | ErrorCode.REQUEST_TIMED_OUT:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.NETWORK_EXCEPTION:  # the transaction coordinator was not reached; this broker is the right one
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.INVALID_FETCH_SIZE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return error


def stable_fetch_error(error: ErrorCode) -> ErrorCode:
    """Return the client's error when OffsetFetch with `require_stable` waits for a write that fails. As in Kafka,
    because consumers before 3.9 retry NOT_COORDINATOR, but not REQUEST_TIMED_OUT."""
    return ErrorCode.NOT_COORDINATOR if error == ErrorCode.REQUEST_TIMED_OUT else group_write_error(error)
