"""`/consumers/<group>/offsets/<topic>/<partition>`: where version 0 of OffsetCommit and OffsetFetch keeps offsets.

The consumers of before Kafka 0.9 wrote them there themselves; whoever asks a broker for version 0 means the same nodes.
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

NOTHING = -1


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
        """UNKNOWN_TOPIC_OR_PARTITION and NOTHING where nothing was committed, as in Kafka."""
        path = _path(group, topic, partition)
        if path is None:
            return ErrorCode.INVALID_GROUP_ID, NOTHING
        found = NOTHING

        async def read() -> None:
            nonlocal found
            found = decode_number(path, (await self._zk.get(path))[0])

        error = await _error(read)
        return error, found if error is ErrorCode.NONE else NOTHING


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
