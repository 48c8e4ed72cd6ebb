"""Requests that commit offsets in a transaction, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.tests.alone import Node
from broker.tests.transactions.markers import Marker, Topic, write

from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest

Row = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
Cell = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
PRODUCER, EPOCH = 7, 3


def request(*rows: tuple[str, int, int], group: str = "g", epoch: int = EPOCH) -> TxnOffsetCommitRequest:
    """Return a request for rows of topic, partition and offset."""
    topics: dict[str, Row] = {}
    for name, index, offset in rows:
        topics.setdefault(name, Row(name)).partitions.append(Cell(index, offset))
    return TxnOffsetCommitRequest("x", group, PRODUCER, epoch, topics=list(topics.values()))


async def commit(client: Any, wanted: TxnOffsetCommitRequest, version: int = 4) -> dict[tuple[str, int], int]:
    response = await client.ask(wanted, version)
    return {(t.name, p.partition_index): p.error_code for t in response.topics for p in t.partitions}


async def end(client: Any, *, commit: bool, epoch: int = EPOCH) -> int:
    offsets = Marker(PRODUCER, epoch, commit, [Topic("__consumer_offsets", [0])], 0, 0)
    return (await write(client, offsets))[PRODUCER]["__consumer_offsets", 0]


Fetched = OffsetFetchRequest.OffsetFetchRequestTopics


async def started(path: Path, **settings: str) -> Node:
    """Start a node; `settings` have underscores for dots."""
    return await Node.start(
        {
            "log.dirs": str(path / "data"),
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "node.id": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.partition.verification.enable": "false",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


async def fetch(client: Any, *, stable: bool) -> list[tuple[int, int]]:
    """Return offset and error of the two partitions of t."""
    group = OffsetFetchRequest.OffsetFetchRequestGroup("g", topics=[Fetched("t", partition_indexes=[0, 1])])
    response = await client.ask(OffsetFetchRequest(groups=[group], require_stable=stable), 9)
    return [(p.committed_offset, p.error_code) for p in response.groups[0].topics[0].partitions]
