"""Transactions in ZooKeeper mode: transaction.version 1, with the coordinator on any broker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from broker.tests.transactions.producers import RETRIED, TRANSACTION_STATE, TransactionalProducer
from broker.tests.zookeeper.cluster import Connect, ThreeBrokers

from odradek_wire.errors import ErrorCode


@pytest.fixture
async def cluster(tmp_path: Path, connect: Connect) -> AsyncIterator[ThreeBrokers]:
    found = ThreeBrokers(tmp_path, connect)
    for broker in (1, 2, 3):
        await found.start(broker, transaction_state_log_num_partitions="3")
    yield found
    await found.end()


def producer_of(cluster: ThreeBrokers) -> TransactionalProducer:
    """Return a producer whose first broker is not the controller."""
    return TransactionalProducer(
        cluster.client,
        lambda: next(broker for broker in cluster.processes if cluster.processes[broker].channel.local is None),
    )


async def answered(cluster: ThreeBrokers, ask: Callable[[], Awaitable[Any]]) -> Any:
    """Send the request until the response has no retriable error."""

    async def asking() -> Any:
        while True:
            response = await ask()
            if (response[0] if isinstance(response, tuple) else response) not in RETRIED:
                return response

    return await cluster.passing(asking())


async def until_state(cluster: ThreeBrokers, producer: TransactionalProducer, wanted: str) -> None:
    async def asking() -> None:
        while (await producer.state())[1] != wanted:
            pass

    await cluster.passing(asking())


async def test_a_transaction_is_committed_on_any_coordinator_and_leader(cluster: ThreeBrokers) -> None:
    producer = producer_of(cluster)
    assert await answered(cluster, producer.init) == ErrorCode.NONE
    coordinator = await producer.coordinator()
    topic = cluster.processes[coordinator].adapter.image.topics[TRANSACTION_STATE]
    assert [len(partition.replicas) for partition in topic.partitions] == [3, 3, 3]
    leader = next(broker for broker in cluster.processes if broker != coordinator)
    await cluster.create([leader])
    for commit in (True, False):
        assert await answered(cluster, lambda: producer.add(("t", 0))) == ErrorCode.NONE
        assert await answered(cluster, lambda: producer.produce(leader)) == ErrorCode.NONE
        assert await answered(cluster, lambda commit=commit: producer.end(commit)) == ErrorCode.NONE
        await until_state(cluster, producer, "CompleteCommit" if commit else "CompleteAbort")
    partition = cluster.processes[leader].node.broker.partitions.get("t", 0)
    assert partition is not None
    assert [each.first_offset for each in partition.log.aborted_transactions(0, 4)] == [2]
    assert producer.producer.epoch == 0


async def test_the_next_coordinator_completes_a_prepared_transaction(cluster: ThreeBrokers) -> None:
    producer = producer_of(cluster)
    assert await answered(cluster, producer.init) == ErrorCode.NONE
    coordinator = await producer.coordinator()
    leader = next(broker for broker in cluster.processes if broker != coordinator)
    await cluster.create([leader])
    assert await answered(cluster, lambda: producer.add(("t", 0))) == ErrorCode.NONE
    assert await answered(cluster, lambda: producer.produce(leader)) == ErrorCode.NONE
    await cluster.kill(coordinator)
    assert await answered(cluster, producer.end) == ErrorCode.NONE
    await until_state(cluster, producer, "CompleteCommit")
    assert await producer.coordinator() != coordinator
