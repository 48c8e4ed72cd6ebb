"""Internal topics that cannot be created: invalid settings are refused at start, other reasons are logged."""

from __future__ import annotations

import pytest
import structlog
from broker.tests.conftest import Connect, StartNode
from broker.tests.manual_clock import ManualClock

from odradek_broker.metadata.internal_topics import LOG_INTERVAL_MS
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest
from odradek_wire.messages.metadata import MetadataRequest

TRANSACTION_KEY = 1
AT_LEAST_1_MIB = "Invalid value 131072 for configuration segment.bytes: Value must be at least 1048576"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"transaction_state_log_segment_bytes": "131072"},
            f"transaction.state.log.segment.bytes=131072: __transaction_state cannot be created, {AT_LEAST_1_MIB}",
        ),
        (
            {"offsets_topic_segment_bytes": "131072"},
            f"offsets.topic.segment.bytes=131072: __consumer_offsets cannot be created, {AT_LEAST_1_MIB}",
        ),
        (
            {"transaction_state_log_segment_bytes": "10", "odradek_emulate": "3.9"},
            "transaction.state.log.segment.bytes=10: __transaction_state cannot be created, "
            "Invalid value 10 for configuration segment.bytes: Value must be at least 14",
        ),
        (
            {"offsets_topic_num_partitions": "10001"},
            "offsets.topic.num.partitions=10001: __consumer_offsets cannot be created, "
            "at most 10000 partitions can be created at a time",
        ),
    ],
)
async def test_invalid_settings_of_internal_topics_are_refused_at_start(
    start_node: StartNode, settings: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match="cannot be created") as refused:
        await start_node(**settings)
    assert str(refused.value) == message


async def test_release_3_9_allows_small_segments_of_internal_topics(start_node: StartNode, connect: Connect) -> None:
    node = await start_node(odradek_emulate="3.9", transaction_state_log_segment_bytes="131072")
    found = await (await connect(node)).ask(FindCoordinatorRequest("tx", TRANSACTION_KEY), 3)
    assert found.error_code == ErrorCode.NONE


async def test_a_failed_internal_topic_is_logged_once_a_minute(start_node: StartNode, connect: Connect) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock, transaction_state_log_replication_factor="3")
    client = await connect(node)

    async def logged() -> list[dict[str, object]]:
        with structlog.testing.capture_logs() as lines:
            found = await client.ask(FindCoordinatorRequest("tx", TRANSACTION_KEY), 3)
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            await client.ask(MetadataRequest([MetadataRequest.MetadataRequestTopic(name="__transaction_state")]), 8)
        return [dict(line) for line in lines if line["log_level"] == "warning"]

    (line,) = await logged()
    assert line.pop("reason")
    assert line == {
        "event": "internal topic cannot be created",
        "log_level": "warning",
        "topic": "__transaction_state",
        "error": "INVALID_REPLICATION_FACTOR",
    }
    assert await logged() == []
    clock.advance_timeouts(LOG_INTERVAL_MS - 1)
    assert await logged() == []
    clock.advance_timeouts(1)
    assert len(await logged()) == 1
