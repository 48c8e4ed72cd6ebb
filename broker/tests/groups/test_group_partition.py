"""One partition of the group coordinator on a real log: when it responds, and the state after a restart."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from broker.tests.groups.coordinator_alone import TIMEOUT_MS, CoordinatorAlone, committed, offset

from odradek_broker.coordination.durable_partition import CoordinatorState
from odradek_broker.deferred import Deferred
from odradek_broker.groups.core.group_records import OffsetRecord
from odradek_broker.groups.core.group_step import GroupStep
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from odradek_wire.messages.offset_commit_value import OffsetCommitValue
from odradek_wire.messages.sync_group import SyncGroupResponse


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[CoordinatorAlone]:
    broker = CoordinatorAlone(tmp_path)
    yield broker
    broker.stop()


@pytest.fixture
def followed(tmp_path: Path) -> Iterator[CoordinatorAlone]:
    """A partition with a follower, which lags until the test lets it fetch."""
    broker = CoordinatorAlone(tmp_path, (1, 2))
    yield broker
    broker.stop()


def commit(broker: CoordinatorAlone) -> int:
    """Commit an offset by a request that is completed immediately; return its error."""
    response: Deferred[OffsetCommitResponse] = Deferred()
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(0, 5)
    topic = OffsetCommitRequest.OffsetCommitRequestTopic("t", partitions=[partition])
    step = broker.groups.shard.commit(OffsetCommitRequest("g", topics=[topic]), 8, response, broker.groups.now())
    assert isinstance(step, GroupStep)
    broker.groups.apply(step)
    return response.result().topics[0].partitions[0].error_code


def test_with_one_replica_a_write_takes_effect_before_it_returns(broker: CoordinatorAlone) -> None:
    outcomes: list[ErrorCode] = []
    broker.groups.write([offset(5)], outcomes.append)
    assert (outcomes, committed(broker)) == ([ErrorCode.NONE], 5)


def test_groups_and_offsets_are_loaded_after_a_restart(tmp_path: Path) -> None:
    before = CoordinatorAlone(tmp_path)
    assert before.join().done
    assert before.sync().result() == SyncGroupResponse(0, 0, "consumer", "range", b"p0")
    before.groups.write([offset(5)], lambda error: None)
    described = before.groups.shard.describe("g")
    before.stop()
    after = CoordinatorAlone(tmp_path)
    assert after.groups.state is CoordinatorState.ACTIVE
    assert (after.groups.shard.describe("g"), committed(after)) == (described, 5)
    after.clock.advance_timeouts(10_001)
    assert after.groups.shard.describe("g").group_state == "Empty"
    after.stop()


def test_the_log_names_a_member_that_is_removed_and_the_reason(broker: CoordinatorAlone) -> None:
    broker.join()
    broker.sync()
    broker.clock.advance_timeouts(10_001)
    member = {"member": "i-1", "client_id": "c", "address": "h"}
    assert broker.log.seen == [("member session expired", {"group": "g", "generation": 1, **member})]


def test_records_take_effect_in_order_at_the_high_watermark(followed: CoordinatorAlone) -> None:
    outcomes: list[tuple[str, ErrorCode]] = []
    followed.groups.write([offset(5)], lambda error: outcomes.append(("first", error)))
    followed.groups.write([offset(6)], lambda error: outcomes.append(("second", error)))
    followed.groups.when_writes_committed(lambda error: outcomes.append(("drained", error)))
    assert (outcomes, committed(followed)) == ([], None)
    followed.follower_fetched_everything()
    assert [name for name, error in outcomes if not error] == ["first", "second", "drained"]
    assert committed(followed) == 6


def test_a_request_that_only_reads_waits_for_earlier_writes_only(followed: CoordinatorAlone) -> None:
    seen: list[tuple[ErrorCode, int | None]] = []
    followed.groups.write([offset(5)], lambda error: None)
    end_offset = followed.partition.log_end_offset
    followed.groups.when_earlier_writes_committed(lambda error: seen.append((error, committed(followed))))
    followed.groups.write([offset(6)], lambda error: None)
    assert seen == []
    followed.follower_fetched(end_offset)
    assert (seen, committed(followed)) == ([(ErrorCode.NONE, 5)], 5)


def test_a_write_of_a_waiting_request_delays_the_requests_after_it(followed: CoordinatorAlone) -> None:
    seen: list[int | None] = []
    followed.groups.write([offset(5)], lambda error: None)
    followed.groups.when_writes_committed(lambda error: followed.groups.write([offset(6)], lambda error: None))
    followed.groups.when_writes_committed(lambda error: seen.append(committed(followed)))
    followed.follower_fetched_everything()
    assert (seen, committed(followed)) == ([], 5)
    followed.follower_fetched_everything()
    assert seen == [6]


def test_waiting_requests_that_write_do_not_grow_the_stack(followed: CoordinatorAlone) -> None:
    count = sys.getrecursionlimit()
    followed.groups.write([offset(0)], lambda error: None)
    for value in range(1, count + 1):
        followed.groups.when_writes_committed(
            lambda error, value=value: followed.groups.write([offset(value)], lambda error: None)
        )
    followed.partition.apply_isr(frozenset({1}), 1)
    followed.soon.run()
    assert committed(followed) == count


def test_a_request_stops_waiting_for_a_write_that_times_out(followed: CoordinatorAlone) -> None:
    outcomes: list[ErrorCode] = []
    followed.groups.write([offset(5)], lambda error: None)
    followed.groups.when_writes_committed(outcomes.append)
    followed.clock.advance_timeouts(TIMEOUT_MS)
    assert outcomes == [ErrorCode.REQUEST_TIMED_OUT]


def test_sync_group_responds_once_the_assignment_is_replicated(followed: CoordinatorAlone) -> None:
    followed.join()
    followed.follower_fetched_everything()
    response = followed.sync()
    assert not response.done
    followed.follower_fetched_everything()
    assert response.result() == SyncGroupResponse(0, 0, "consumer", "range", b"p0")


def test_a_write_that_times_out_may_still_take_effect(followed: CoordinatorAlone) -> None:
    outcomes: list[ErrorCode] = []
    followed.groups.write([offset(5)], outcomes.append)
    followed.clock.advance_timeouts(TIMEOUT_MS)
    followed.soon.run()
    assert (outcomes, committed(followed)) == ([ErrorCode.REQUEST_TIMED_OUT], None)
    followed.follower_fetched_everything()
    assert (outcomes, committed(followed)) == ([ErrorCode.REQUEST_TIMED_OUT], 5)


def test_a_write_may_follow_a_timed_out_write_immediately(followed: CoordinatorAlone) -> None:
    outcomes: list[tuple[str, ErrorCode]] = []

    def first(error: ErrorCode) -> None:
        outcomes.append(("first", error))
        followed.groups.write([offset(7)], lambda error: outcomes.append(("third", error)))

    followed.groups.write([offset(5)], first)
    followed.groups.write([offset(6)], lambda error: outcomes.append(("second", error)))
    followed.clock.advance_timeouts(TIMEOUT_MS)
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    assert outcomes == [("first", timed_out), ("second", timed_out)]
    followed.follower_fetched_everything()
    assert outcomes[2:] == [("third", ErrorCode.NONE)]
    assert committed(followed) == 7


def test_nothing_is_written_below_min_insync_replicas(followed: CoordinatorAlone) -> None:
    followed.partition.set_min_insync_replicas(2)
    followed.partition.apply_isr(frozenset({1}), 1)
    outcomes: list[ErrorCode] = []
    followed.groups.write([offset(5)], outcomes.append)
    assert (outcomes, followed.partition.log_end_offset) == ([ErrorCode.NOT_ENOUGH_REPLICAS], 0)


def test_a_failed_commit_is_a_response_and_no_warning(followed: CoordinatorAlone) -> None:
    followed.partition.set_min_insync_replicas(2)
    followed.partition.apply_isr(frozenset({1}), 1)
    assert commit(followed) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert followed.log.seen == []


def test_a_commit_above_max_message_bytes_gets_unknown_server_error(broker: CoordinatorAlone) -> None:
    log = broker.partition.log
    log.update_config(replace(log.config, max_message_bytes=10))
    assert commit(broker) == ErrorCode.UNKNOWN_SERVER_ERROR


def test_resigning_completes_pending_requests(followed: CoordinatorAlone) -> None:
    followed.join()
    followed.follower_fetched_everything()
    response = followed.sync()
    outcomes: list[ErrorCode] = []
    followed.groups.write([offset(5)], outcomes.append)
    followed.groups.when_writes_committed(outcomes.append)
    followed.groups.resign()
    assert response.result() == SyncGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert outcomes == [ErrorCode.NOT_COORDINATOR] * 2


def test_independent_records_are_written_in_several_batches(broker: CoordinatorAlone) -> None:
    long = "x" * 4000
    records = [OffsetRecord("g", "t", n, OffsetCommitValue(n, -1, long, 100)) for n in range(300)]
    outcomes: list[ErrorCode] = []
    broker.groups.write_in_batches(records, outcomes.append)
    assert outcomes == [ErrorCode.NONE]
    assert len(broker.groups.shard.offsets.of_group("g")["t"]) == 300


def test_a_batch_that_the_log_refuses_ends_a_write_in_batches(broker: CoordinatorAlone) -> None:
    log = broker.partition.log
    log.update_config(replace(log.config, max_message_bytes=100_000))
    large = [OffsetRecord("g", "t", n, OffsetCommitValue(n, -1, "x" * 4000, 100)) for n in range(140)]
    outcomes: list[ErrorCode] = []
    broker.groups.write_in_batches(large, outcomes.append)
    assert outcomes == [ErrorCode.MESSAGE_TOO_LARGE]
    assert (log.log_end_offset, dict(broker.groups.shard.offsets.of_group("g"))) == (0, {})


def test_a_write_in_batches_completes_with_its_last_batch(followed: CoordinatorAlone) -> None:
    records = [OffsetRecord("g", "t", n, OffsetCommitValue(n, -1, "x" * 4000, 100)) for n in range(300)]
    outcomes: list[ErrorCode] = []
    followed.groups.write_in_batches(records, outcomes.append)
    assert outcomes == []
    followed.follower_fetched_everything()
    assert outcomes == [ErrorCode.NONE]


def test_a_long_log_is_loaded_in_slices(tmp_path: Path) -> None:
    before = CoordinatorAlone(tmp_path)
    for number in range(5):
        long = [OffsetRecord("g", "t", n, OffsetCommitValue(number, -1, "x" * 4000, 100)) for n in range(100)]
        before.groups.write(long, lambda error: None)
    before.stop()
    after = CoordinatorAlone(tmp_path)
    assert after.groups.state is CoordinatorState.LOADING
    after.soon.run()
    assert (after.groups.state, committed(after)) == (CoordinatorState.ACTIVE, 4)
    after.stop()


def test_loading_continues_when_the_beginning_of_the_log_is_deleted(tmp_path: Path) -> None:
    before = CoordinatorAlone(tmp_path)
    for number in range(5):
        long = [OffsetRecord("g", "t", n, OffsetCommitValue(number, -1, "x" * 4000, 100)) for n in range(100)]
        before.groups.write(long, lambda error: None)
    before.stop()
    after = CoordinatorAlone(tmp_path)
    after.soon.callbacks.pop(0)()
    assert after.groups.state is CoordinatorState.LOADING
    after.partition.log.advance_log_start_offset(400)
    after.soon.run()
    assert (after.groups.state, committed(after)) == (CoordinatorState.ACTIVE, 4)
    after.stop()
