"""Topics with records that the log cleaner can remove."""

from __future__ import annotations

from typing import Any

from broker.tests.alone import Node
from log.tests.cleaner_kit import keyed

from odradek_log.log import Log
from odradek_wire.errors import ErrorCode

COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}


def log_of(node: Node, topic: str = "t", index: int = 0) -> Log:
    return node.broker.partitions.get(topic, index).log  # type: ignore[union-attr]


async def fill(client: Any, node: Node, topic: str = "t", batches: int = 5) -> None:
    """Batches of the same two keys, and after them a new segment."""
    timestamp = node.broker.clock.wall_ms()
    for at in range(batches):
        records = keyed((b"a", b"%d" % at), (b"b", b"%d" % at), timestamp=timestamp)
        assert (await client.produce(topic, bytes(records))).error_code == ErrorCode.NONE
    log_of(node, topic).roll()
