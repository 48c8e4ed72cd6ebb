"""`/consumers/<group>/offsets/<topic>/<partition>`: the offsets of version 0 of OffsetCommit and OffsetFetch.

Owns the writes and reads of these znodes. Consumers older than Kafka 0.9 write them without a broker.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from odradek_controller.zookeeper import paths
from odradek_controller.zookeeper.bootstrap import create_all
from odradek_controller.zookeeper.client import (
    ConnectionLossError,
    NoNodeError,
    SessionExpiredError,
    ZooKeeper,
    ZooKeeperError,
)
from odradek_controller.zookeeper.json_text import InvalidZnodeError
from odradek_controller.zookeeper.znodes import decode_number, encode_number
from odradek_wire.errors import ErrorCode

NO_OFFSET = -1


class ConsumerOffsets:
    """The broker's `VersionZeroOffsets`."""

    def __init__(self, zk: ZooKeeper) -> None:
        self._zk = zk

    async def commit(self, group: str, topic: str, partition: int, offset: int) -> ErrorCode:
        """Store the offset; create the znode if it is missing."""
        path = _path(group, topic, partition)
        if path is None:
            return ErrorCode.INVALID_GROUP_ID

        async def write() -> None:
            try:
                await self._zk.set(path, encode_number(offset))
            except NoNodeError:
                await create_all(self._zk, path)
                await self._zk.set(path, encode_number(offset))

        return await _error(write)

    async def fetch(self, group: str, topic: str, partition: int) -> tuple[ErrorCode, int]:
        """Return NONE and the offset, or an error and NO_OFFSET. As in Kafka, the error of a missing offset is
        UNKNOWN_TOPIC_OR_PARTITION."""
        path = _path(group, topic, partition)
        if path is None:
            return ErrorCode.INVALID_GROUP_ID, NO_OFFSET
        offset = NO_OFFSET

        async def read() -> None:
            nonlocal offset
            offset = decode_number(path, (await self._zk.get(path))[0])

        error = await _error(read)
        return error, offset


def _path(group: str, topic: str, partition: int) -> str | None:
    """Return the path of the offset; None for a group id that cannot be the name of a znode."""
    if not group or "/" in group or group in (".", ".."):
        return None
    return f"{paths.CONSUMERS}/{group}/offsets/{topic}/{partition}"


async def _error(operation: Callable[[], Awaitable[None]]) -> ErrorCode:
    """Return the error of the operation, or NONE."""
    try:
        await operation()
    except NoNodeError:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except (ConnectionLossError, SessionExpiredError):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    except (ZooKeeperError, InvalidZnodeError):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE
