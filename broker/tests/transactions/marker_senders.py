"""Managers and coordinators that send transaction markers, and the requests that leaders receive, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from broker.tests.transactions.producers import TransactionalProducer, Transactions

from odradek_broker.broker import Broker
from odradek_broker.network.interceptors import Delay
from odradek_broker.replication.partition import Partition
from odradek_broker.transactions.core.transaction_metadata import Producer, TopicPartition
from odradek_broker.transactions.core.transaction_step import TransactionMarkers
from odradek_broker.transactions.marker_writing import write_marker
from odradek_broker.transactions.transaction_marker_channel_manager import (
    TransactionMarkerChannelManager,
    WriteMarker,
)
from odradek_wire.apis import ApiKey
from odradek_wire.errors import ErrorCode


async def begun(trio: Transactions, leader: int, transactional_id: str, *topics: str) -> TransactionalProducer:
    """Return a producer whose open transaction has a record in each of the topics."""
    producer = trio.producer(transactional_id)
    assert await trio.until_answered(producer.init) == ErrorCode.NONE
    for topic in topics:
        assert await trio.until_answered(lambda topic=topic: producer.add((topic, 0))) == ErrorCode.NONE
        appended = hosted(trio, leader, topic).log_end_offset + 1
        producing = asyncio.ensure_future(producer.produce(leader, topic, acks=1))
        await trio.until(producing.done)
        assert producing.result() == ErrorCode.NONE
        assert hosted(trio, leader, topic).log_end_offset == appended
    return producer


def hosted(trio: Transactions, broker: int, topic: str) -> Partition:
    found = trio.cluster.nodes[broker].broker.partitions.get(topic, 0)
    assert found is not None
    return found


def markers_seen(trio: Transactions, broker: int, first_ms: int = 0) -> list[list[str]]:
    """Return the topics of each WriteTxnMarkers request to this broker from now on. The first one is delayed."""
    seen: list[list[str]] = []

    def look(ctx: Any, request: Any) -> Delay | None:
        if ctx.api_key != ApiKey.WRITE_TXN_MARKERS:
            return None
        seen.append([topic.name for marker in request.markers for topic in marker.topics])
        return Delay(first_ms) if len(seen) == 1 else None

    trio.cluster.nodes[broker].broker.interceptors.before_handle.append(look)
    return seen


def sending_tasks() -> list[Any]:
    return [task for task in asyncio.all_tasks() if "MarkerChannel" in repr(task.get_coro())]


def local_write(broker: Broker) -> WriteMarker:
    return partial(write_marker, broker.partitions, timeout_ms=broker.config.integer("request.timeout.ms"))


def manager_of(broker: Broker, write: WriteMarker | None = None) -> TransactionMarkerChannelManager:
    """Return a manager of this broker in addition to that of its coordinator."""
    return TransactionMarkerChannelManager(
        node_id=broker.node_id,
        image=lambda: broker.image,
        has_metadata=lambda: broker.has_metadata,
        channels=broker.channels,
        write_marker=write or local_write(broker),
        request_timeout_s=broker.config.integer("request.timeout.ms") / 1000,
        socket_timeout_s=broker.config.integer("replica.socket.timeout.ms") / 1000,
        timers=broker.timers,
        log=broker.log,
    )


class Coordinator:
    """A coordinator of decided transactions. `markers_written` raises an exception the first `failures` times."""

    def __init__(self, failures: int = 0) -> None:
        self.checks = 0
        """The number of times that a channel has read `is_active`."""
        self.written: list[TopicPartition] = []
        self.failures = failures

    @property
    def is_active(self) -> bool:
        self.checks += 1
        return True

    def markers_written(self, markers: TransactionMarkers, partitions: Iterable[TopicPartition]) -> None:
        if self.failures:
            self.failures -= 1
            raise ZeroDivisionError("planted")
        self.written += partitions


def markers_of(producer: int, *topics: str) -> TransactionMarkers:
    """Return markers of a producer that no partition knows."""
    return TransactionMarkers(
        transactional_id=f"tx-{producer}",
        producer=Producer(1_000_000 + producer, 0),
        coordinator_epoch=0,
        commit=True,
        transaction_version=0,
        partitions=frozenset((topic, 0) for topic in topics),
    )
