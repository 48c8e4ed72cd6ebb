"""Transactional Produce and TxnOffsetCommit with verification by the coordinator: the accepted writes, and the errors
for old and new clients."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from compat_tests.oracle.batches import with_bytes, with_new_crc
from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Peer
from compat_tests.oracle.transactional_client import NEWEST_LEVEL, Producer, TransactionalClient

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
UNKNOWN_PRODUCER_ID = 4242
NEW_PRODUCE, NEW_COMMIT = 12, 5
LEVELS = (2, 1)


@versions_of("Produce", 7, 11)
def test_old_clients_add_a_partition_before_they_write_to_it(version: int, level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("Produce", version), f"write-{version}-{level}")
    client.begin()
    client.produce(0, version=version)
    client.add(1)
    client.produce(0, version=version)
    assert client.produce(1, version=version) == 0
    client.add(0)
    assert client.produce(0, version=version) == 0
    _send_invalid_writes(client, version)
    client.produce(0, version=version, sequence=0)  # a duplicate
    client.produce(0, version=version, sequence=7)
    assert client.produce(0, version=version) == 0
    client.compare()
    client.end(True, version=4)
    client.produce(0, version=version)
    client.produce(0, version=version, sequence=0)
    client.add(0)
    assert client.produce(0, version=version) == 0
    client.end(False, version=4)
    client.compare()


@versions_of("Produce", NEW_PRODUCE)
@pytest.mark.parametrize("level", LEVELS, indirect=True)
def test_a_partition_is_added_as_new_clients_write_to_it(version: int, level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("Produce", version), f"write-{version}-{level}")
    client.begin()
    assert client.produce(0, version=version) == 0
    assert client.produce(1, version=version) == 0
    client.compare()
    _send_invalid_writes(client, version)
    client.produce(0, version=version, sequence=0)
    client.produce(0, version=version, sequence=7)
    client.produce(2, version=version, sequence=7)
    client.compare()
    before = client.producer
    client.end(True)
    client.compare()
    client.produce(0, version=version, by=before)
    client.produce(0, version=version, by=before, sequence=0)
    client.produce(2, version=version, by=before, sequence=0)
    client.compare()
    client.produce(0, version=version, sequence=3)
    client.produce(0, version=version, sequence=0)
    client.compare()
    client.end(False)
    client.compare()


def _send_invalid_writes(client: TransactionalClient, version: int) -> None:
    """Compare the errors of invalid writes while a transaction is open in partitions 0 and 1. Partition 0 still accepts
    five records: a partition with an open transaction does not verify the transactional id."""
    owner = client.producer
    # In a partition with an open transaction both brokers remember a newer epoch, even though they refuse it.
    client.produce(2, version=version, by=owner.at(1))
    for by in (owner.at(-1), Producer(UNKNOWN_PRODUCER_ID, owner.epoch), Producer(-1, -1)):
        for partition in (0, 2):
            client.produce(partition, version=version, by=by)
    for name in ("", None, "unknown"):
        for partition in (0, 2):
            client.send((partition, client.records(owner, 1)), version=version, name=name)
    for partition in (0, 2):
        client.produce(partition, version=version, transactional=False)
        client.produce(partition, version=version, transactional=False, name=client.id)
    plain = client.records(Producer(-1, -1), -1, transactional=False)
    client.send((0, client.records(owner, 2)), (2, plain), version=version, name=client.id)
    client.send((0, client.records(owner, 3)), (9, client.records(owner, 0)), version=version, name=client.id)
    client.send((0, client.records(owner, 4)), (1, client.records(owner.at(-1), 0)), version=version, name=client.id)
    client.send((0, b""), (1, client.records(owner, 1)), version=version, name=client.id)
    for acks in (1, 2):
        client.send((0, client.records(owner, 5)), version=version, name=client.id, acks=acks)

    def control(peer: Peer) -> bytes:
        return with_new_crc(with_bytes(client.records(owner, 6)(peer), 21, struct.pack(">h", 0x30)))

    client.send((0, control), version=version, name=client.id)
    client.set_sequence(0, 5)
    client.compare()


@versions_of("TxnOffsetCommit", 0, 4)
def test_old_clients_add_a_group_before_they_commit_offsets(version: int, level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("TxnOffsetCommit", version), f"commit-offsets-{version}-{level}")
    client.begin()
    client.commit_offsets(1, version=version)
    client.add(0)
    client.commit_offsets(2, version=version)
    client.compare()
    client.add_offsets()
    _send_invalid_commits(client, version)
    assert client.commit_offsets(3, version=version) == 0
    client.compare()
    client.end(True, version=4)
    client.compare()
    client.commit_offsets(4, version=version)
    client.add_offsets()
    assert client.commit_offsets(5, version=version) == 0
    client.compare()
    client.end(False, version=4)
    client.compare()


@versions_of("TxnOffsetCommit", NEW_COMMIT)
@pytest.mark.parametrize("level", LEVELS, indirect=True)
def test_a_group_is_added_as_new_clients_commit_offsets(version: int, level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("TxnOffsetCommit", version), f"commit-offsets-{version}-{level}")
    client.begin()
    assert client.commit_offsets(1, version=version) == 0
    _send_invalid_commits(client, version)
    client.compare()
    before = client.producer
    client.end(True)
    client.compare()
    client.commit_offsets(2, version=version, by=before)
    assert client.commit_offsets(3, version=version) == 0
    client.compare()
    client.end(False)
    client.compare()


def _send_invalid_commits(client: TransactionalClient, version: int) -> None:
    for by in (client.producer.at(1), client.producer.at(-1), Producer(UNKNOWN_PRODUCER_ID, client.producer.epoch)):
        client.commit_offsets(9, version=version, by=by)
    for name in ("", "unknown"):
        client.commit_offsets(9, version=version, transactional_id=name)
    client.commit_offsets(9, version=version, group_id="")
    if version >= 3:
        client.commit_offsets(9, version=version, generation_id=3)
        client.commit_offsets(9, version=version, member_id="unknown")
    client.describe()


@pytest.mark.parametrize("level", [NEWEST_LEVEL], indirect=True)
def test_a_transaction_ended_without_its_coordinator(level: int, pair_for: PairFor) -> None:
    """WriteTxnMarkers ends the transaction, as `kafka-transactions abort` does."""
    client = TransactionalClient(pair_for("WriteTxnMarkers", 1), "ended-by-markers")
    client.begin()
    client.produce(0)
    marker = {
        "producer_id": client.producer.id,
        "producer_epoch": client.producer.epoch,
        "transaction_result": False,
        "topics": [{"name": client.topic, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    client.pair.ask("WriteTxnMarkers", 1, {"markers": [marker]})
    client.compare()
    for version in (11, 12):
        client.produce(0, version=version)
    client.compare()
    client.end(True)
    client.compare()
