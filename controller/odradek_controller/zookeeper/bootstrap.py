"""What must be there before a broker joins a cluster in ZooKeeper: the persistent paths and the cluster's id."""

from __future__ import annotations

from contextlib import suppress

from . import paths
from .client import NodeExistsError, NoNodeError, ZooKeeper
from .znodes import decode_cluster_id, encode_cluster_id


async def create_persistent_paths(zk: ZooKeeper) -> None:
    """As every broker of Kafka does when it starts; what is there stays."""
    for path in paths.PERSISTENT:
        await create_all(zk, path)


async def create_all(zk: ZooKeeper, path: str, data: bytes | None = None) -> None:
    """A node with its parents. A node that is there stays as it is."""
    try:
        await zk.create(path, data)
    except NodeExistsError:
        return
    except NoNodeError:
        await create_all(zk, path.rpartition("/")[0])
        with suppress(NodeExistsError):
            await zk.create(path, data)


async def cluster_id(zk: ZooKeeper, proposed: str) -> str:
    """The id of the cluster, which is the proposed one if it has none yet. Raises InvalidZnodeError."""
    await create_all(zk, paths.CLUSTER_ID, encode_cluster_id(proposed))
    data, _ = await zk.get(paths.CLUSTER_ID)
    return decode_cluster_id(paths.CLUSTER_ID, data)
