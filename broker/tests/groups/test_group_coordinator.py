"""Requests to the group coordinator that wait for a write which is not replicated in time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from broker.tests.groups.coordinator_alone import TIMEOUT_MS, CoordinatorAlone

from odradek_broker.config import BrokerConfig
from odradek_broker.deferred import Deferred
from odradek_broker.groups.group_coordinator import GroupCoordinator
from odradek_broker.transactions.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from odradek_controller.image import ClusterImage, MetadataDelta, TopicImage
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_commit import OffsetCommitRequest
from odradek_wire.messages.offset_delete import OffsetDeleteRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.uuid import Uuid


def no_transactions() -> AddPartitionsToTxnManager:
    raise AssertionError("no request has a transaction")


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[tuple[CoordinatorAlone, GroupCoordinator]]:
    """A coordinator with one partition, whose follower does not fetch."""
    broker = CoordinatorAlone(tmp_path, (1, 2))
    config = BrokerConfig({"offsets.topic.num.partitions": "1"})
    groups = GroupCoordinator(
        config=lambda: config,
        image=ClusterImage,
        has_metadata=lambda: True,
        add_partitions_to_txn_manager=no_transactions,
        clock=broker.clock,
        timers=broker.timers,
        log=broker.log,
    )
    groups.elected(broker.partition)
    yield broker, groups
    groups.stop()
    broker.stop()


def commit(groups: GroupCoordinator) -> None:
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, 5)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[partition])
    groups.commit_offsets(OffsetCommitRequest("g", topics=[topic]), 8)


def test_requests_do_not_wait_longer_than_a_pending_commit(
    coordinator: tuple[CoordinatorAlone, GroupCoordinator],
) -> None:
    broker, groups = coordinator
    commit(groups)
    fetched = groups.fetch_offsets(OffsetFetchRequest.OffsetFetchRequestGroup("g"), require_stable=True)
    offsets_deleted = groups.delete_offsets(OffsetDeleteRequest("g"))
    group_deleted = groups.delete_group("g")
    assert isinstance(fetched, Deferred)
    assert isinstance(offsets_deleted, Deferred)
    assert (fetched.done, offsets_deleted.done, group_deleted.done) == (False, False, False)
    broker.clock.advance_timeouts(TIMEOUT_MS)
    assert fetched.result().group.error_code == ErrorCode.NOT_COORDINATOR
    assert offsets_deleted.result().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert group_deleted.result().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_offsets_of_a_deleted_topic_are_deleted_after_a_pending_commit(
    coordinator: tuple[CoordinatorAlone, GroupCoordinator],
) -> None:
    broker, groups = coordinator
    commit(groups)
    topic = TopicImage(Uuid(b"\2" * 16), "t", ())
    before = replace(ClusterImage(), topics={"t": topic}, topics_by_id={topic.id: topic})
    groups.metadata_changed(MetadataDelta.between(before, ClusterImage()))
    broker.clock.advance_timeouts(TIMEOUT_MS)
    assert broker.partition.log_end_offset == 1
    broker.follower_fetched_everything()
    assert broker.partition.log_end_offset == 2
