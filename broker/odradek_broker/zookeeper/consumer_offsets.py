"""`/consumers/<group>/offsets/<topic>/<partition>`: the offsets of version 0 of OffsetCommit and OffsetFetch.

Consumers older than Kafka 0.9 write these znodes themselves.
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
        """Return the offset; UNKNOWN_TOPIC_OR_PARTITION and NO_OFFSET if there is none, as in Kafka."""
        path = _path(group, topic, partition)
        if path is None:
            return ErrorCode.INVALID_GROUP_ID, NO_OFFSET
        found = NO_OFFSET

        async def read() -> None:
            nonlocal found
            found = decode_number(path, (await self._zk.get(path))[0])

        error = await _error(read)
        return error, found if error is ErrorCode.NONE else NO_OFFSET


def _path(group: str, topic: str, partition: int) -> str | None:
    if not group or "/" in group or group in (".", ".."):
        return None
    return f"{paths.CONSUMERS}/{group}/offsets/{topic}/{partition}"


async def _error(done: Callable[[], Awaitable[None]]) -> ErrorCode:
    try:
        await done()
    except NoNodeError:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except (ConnectionLossError, SessionExpiredError):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    except (ZooKeeperError, InvalidZnodeError):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return ErrorCode.NONE
