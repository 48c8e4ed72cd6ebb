"""The znodes that a broker creates before it registers: the persistent paths and the cluster id."""

from __future__ import annotations

from contextlib import suppress

from . import paths
from .client import NodeExistsError, NoNodeError, ZooKeeper
from .znodes import decode_cluster_id, encode_cluster_id


async def create_persistent_paths(zk: ZooKeeper) -> None:
    """Create the znodes of `paths.PERSISTENT` that are missing, as every broker of Kafka does when it starts."""
    for path in paths.PERSISTENT:
        await create_all(zk, path)


async def create_all(zk: ZooKeeper, path: str, data: bytes | None = None) -> None:
    """Create a znode and its parents; do not change an existing one."""
    try:
        await zk.create(path, data)
    except NodeExistsError:
        return
    except NoNodeError:
        await create_all(zk, path.rpartition("/")[0])
        with suppress(NodeExistsError):
            await zk.create(path, data)


async def cluster_id(zk: ZooKeeper, proposed: str) -> str:
    """Return the stored cluster id; if there is none, store the proposed one. Raises InvalidZnodeError."""
    await create_all(zk, paths.CLUSTER_ID, encode_cluster_id(proposed))
    data, _ = await zk.get(paths.CLUSTER_ID)
    return decode_cluster_id(paths.CLUSTER_ID, data)
