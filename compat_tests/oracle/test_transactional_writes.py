"""Transactional Produce and TxnOffsetCommit with verification by the coordinator: the accepted writes, and the errors
for old and new clients."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from compat_tests.oracle.batches import with_bytes, with_new_crc
from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.coordinated import NEWEST_LEVEL, Coordinated, Producer
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Peer

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
STRANGER = 4242
NEW_PRODUCE, NEW_COMMIT = 12, 5
OF_ALL_AGES = (2, 1)


@versions_of("Produce", 7, 11)
def test_old_clients_add_a_partition_before_they_write_to_it(version: int, level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("Produce", version), f"write-{version}-{level}")
    mine.begin()
    mine.produce(0, version=version)
    mine.add(1)
    mine.produce(0, version=version)
    assert mine.produce(1, version=version) == 0
    mine.add(0)
    assert mine.produce(0, version=version) == 0
    _refused(mine, version)
    mine.produce(0, version=version, sequence=0)  # a duplicate
    mine.produce(0, version=version, sequence=7)
    assert mine.produce(0, version=version) == 0
    mine.look()
    mine.end(True, version=4)
    mine.produce(0, version=version)
    mine.produce(0, version=version, sequence=0)
    mine.add(0)
    assert mine.produce(0, version=version) == 0
    mine.end(False, version=4)
    mine.look()


@versions_of("Produce", NEW_PRODUCE)
@pytest.mark.parametrize("level", OF_ALL_AGES, indirect=True)
def test_a_partition_is_added_as_new_clients_write_to_it(version: int, level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("Produce", version), f"write-{version}-{level}")
    mine.begin()
    assert mine.produce(0, version=version) == 0
    assert mine.produce(1, version=version) == 0
    mine.look()
    _refused(mine, version)
    mine.produce(0, version=version, sequence=0)
    mine.produce(0, version=version, sequence=7)
    mine.produce(2, version=version, sequence=7)
    mine.look()
    before = mine.producer
    mine.end(True)
    mine.look()
    mine.produce(0, version=version, by=before)
    mine.produce(0, version=version, by=before, sequence=0)
    mine.produce(2, version=version, by=before, sequence=0)
    mine.look()
    mine.produce(0, version=version, sequence=3)
    mine.produce(0, version=version, sequence=0)
    mine.look()
    mine.end(False)
    mine.look()


def _refused(mine: Coordinated, version: int) -> None:
    """Send invalid writes while a transaction is open in partitions 0 and 1. Partition 0 still accepts five records: a
    partition with an open transaction does not verify the transactional id."""
    rightful = mine.producer
    # In a partition with an open transaction both brokers remember a newer epoch, even though they refuse it.
    mine.produce(2, version=version, by=rightful.at(1))
    for by in (rightful.at(-1), Producer(STRANGER, rightful.epoch), Producer(-1, -1)):
        for partition in (0, 2):
            mine.produce(partition, version=version, by=by)
    for name in ("", None, "unknown"):
        for partition in (0, 2):
            mine.send((partition, mine.records(rightful, 1)), version=version, name=name)
    for partition in (0, 2):
        mine.produce(partition, version=version, transactional=False)
        mine.produce(partition, version=version, transactional=False, name=mine.id)
    plain = mine.records(Producer(-1, -1), -1, transactional=False)
    mine.send((0, mine.records(rightful, 2)), (2, plain), version=version, name=mine.id)
    mine.send((0, mine.records(rightful, 3)), (9, mine.records(rightful, 0)), version=version, name=mine.id)
    mine.send((0, mine.records(rightful, 4)), (1, mine.records(rightful.at(-1), 0)), version=version, name=mine.id)
    mine.send((0, b""), (1, mine.records(rightful, 1)), version=version, name=mine.id)
    for acks in (1, 2):
        mine.send((0, mine.records(rightful, 5)), version=version, name=mine.id, acks=acks)

    def control(peer: Peer) -> bytes:
        return with_new_crc(with_bytes(mine.records(rightful, 6)(peer), 21, struct.pack(">h", 0x30)))

    mine.send((0, control), version=version, name=mine.id)
    mine.wrote(0, 5)
    mine.look()


@versions_of("TxnOffsetCommit", 0, 4)
def test_old_clients_add_a_group_before_they_commit_offsets(version: int, level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("TxnOffsetCommit", version), f"commit-offsets-{version}-{level}")
    mine.begin()
    mine.commit_offsets(1, version=version)
    mine.add(0)
    mine.commit_offsets(2, version=version)
    mine.look()
    mine.add_offsets()
    _commits_refused(mine, version)
    assert mine.commit_offsets(3, version=version) == 0
    mine.look()
    mine.end(True, version=4)
    mine.look()
    mine.commit_offsets(4, version=version)
    mine.add_offsets()
    assert mine.commit_offsets(5, version=version) == 0
    mine.look()
    mine.end(False, version=4)
    mine.look()


@versions_of("TxnOffsetCommit", NEW_COMMIT)
@pytest.mark.parametrize("level", OF_ALL_AGES, indirect=True)
def test_a_group_is_added_as_new_clients_commit_offsets(version: int, level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("TxnOffsetCommit", version), f"commit-offsets-{version}-{level}")
    mine.begin()
    assert mine.commit_offsets(1, version=version) == 0
    _commits_refused(mine, version)
    mine.look()
    before = mine.producer
    mine.end(True)
    mine.look()
    mine.commit_offsets(2, version=version, by=before)
    assert mine.commit_offsets(3, version=version) == 0
    mine.look()
    mine.end(False)
    mine.look()


def _commits_refused(mine: Coordinated, version: int) -> None:
    for by in (mine.producer.at(1), mine.producer.at(-1), Producer(STRANGER, mine.producer.epoch)):
        mine.commit_offsets(9, version=version, by=by)
    for name in ("", "unknown"):
        mine.commit_offsets(9, version=version, transactional_id=name)
    mine.commit_offsets(9, version=version, group_id="")
    if version >= 3:
        mine.commit_offsets(9, version=version, generation_id=3)
        mine.commit_offsets(9, version=version, member_id="unknown")
    mine.describe()


@pytest.mark.parametrize("level", [NEWEST_LEVEL], indirect=True)
def test_a_transaction_ended_without_its_coordinator(level: int, pair_for: PairFor) -> None:
    """WriteTxnMarkers ends the transaction, as `kafka-transactions abort` does."""
    mine = Coordinated(pair_for("WriteTxnMarkers", 1), "behind-its-back")
    mine.begin()
    mine.produce(0)
    marker = {
        "producer_id": mine.producer.id,
        "producer_epoch": mine.producer.epoch,
        "transaction_result": False,
        "topics": [{"name": mine.topic, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    mine.pair.ask("WriteTxnMarkers", 1, {"markers": [marker]})
    mine.look()
    for version in (11, 12):
        mine.produce(0, version=version)
    mine.look()
    mine.end(True)
    mine.look()
