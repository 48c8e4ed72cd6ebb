"""AlterReplicaLogDirs: replicas move between the log directories of their broker during Produces."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker.tests.three_brokers import BROKER, TOPIC, Connect, Trio, configure, fetch, latest
from log.tests.cleaner_kit import keyed, left

from odradek_broker.metadata.directory_identity import directory_id_of
from odradek_broker.replication import replica_alter_log_dirs_manager as moves
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from odradek_wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.describe_log_dirs import DescribeLogDirsRequest

THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


class TwoDirectories(Trio):
    """Each broker has two log directories, `a` and `b`."""

    def static(self, broker: int) -> dict[str, str]:
        return {**super().static(broker), "log.dirs": ",".join(self.directory(broker, name) for name in "ab")}

    def directory(self, broker: int, name: str) -> str:
        return str(self.path / f"broker-{broker}-{name}")

    def place(self, broker: int) -> str:
        """Return the directory of the partition's log."""
        found = self.hosted(broker).directory
        assert found is not None
        return found.path[-1]

    def names(self, broker: int, name: str) -> set[str]:
        """Return the partition's directories in a log directory: plain, or by suffix."""
        found = [path.name for path in Path(self.directory(broker, name)).iterdir() if path.name.startswith("t-0")]
        return {each if "." not in each else each.rpartition("-")[2] for each in found}

    def controller_agrees(self, broker: int) -> bool:
        """Return whether the controller has assigned the directory in which the log is."""
        here = self.hosted(broker).directory
        return here is not None and self.partition.directory(broker) == directory_id_of(here)

    def bytes_of(self, broker: int) -> bytes:
        return (Path(self.directory(broker, self.place(broker))) / "t-0" / "00000000000000000000.log").read_bytes()


@pytest.fixture
async def trio(tmp_path: Path, connect: Connect) -> AsyncIterator[TwoDirectories]:
    found = TwoDirectories(tmp_path, connect)
    await found.start()
    yield found
    await found.cluster.stop(grace_ms=100)


async def move(trio: TwoDirectories, broker: int, name: str) -> ErrorCode:
    wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDir(
        trio.directory(broker, name), [AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic("t", [0])]
    )
    response = await (await trio.client(broker)).ask(AlterReplicaLogDirsRequest([wanted]), 2)
    return ErrorCode(response.results[0].partitions[0].error_code)


async def described(client: Any) -> dict[str, list[tuple[int, bool]]]:
    """Return (lag, is future) of the partition by directory."""
    response = await client.ask(DescribeLogDirsRequest(None), 4)
    found: dict[str, list[tuple[int, bool]]] = {}
    for each in response.results:
        partitions = [partition for topic in each.topics for partition in topic.partitions]
        found[each.log_dir[-1]] = [(partition.offset_lag, partition.is_future_key) for partition in partitions]
    return found


async def test_a_new_replica_of_a_broker_with_several_directories_is_reported(trio: TwoDirectories) -> None:
    await trio.create([1, 2])
    await trio.until(lambda: trio.controller_agrees(1) and trio.controller_agrees(2))


@pytest.mark.parametrize("broker", [1, 2])
async def test_a_replica_moves_during_produces(trio: TwoDirectories, make_batch: Any, broker: int) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    source, target = ("a", "b") if trio.place(broker) == "a" else ("b", "a")
    for value in range(30):
        await client.produce("t", make_batch(b"%d" % value * 1000))
    assert await move(trio, broker, target) == ErrorCode.NONE
    value = 30
    while trio.place(broker) == source:
        assert (await client.produce("t", make_batch(b"%d" % value * 1000))).base_offset == value
        value += 1
        trio.clock.advance_timeouts(1)
    assert value < 1_000, "the move completes"
    assert (await client.produce("t", make_batch(b"after"))).base_offset == value
    assert trio.bytes_of(1) == trio.bytes_of(2)
    assert trio.controller_agrees(broker)
    assert (trio.names(broker, target), trio.names(broker, source)) == ({"t-0"}, {"delete"})
    await trio.cluster.kill_broker(broker)
    await trio.cluster.start_broker(trio.static(broker))
    await trio.until_in_sync(1, 2)
    assert (trio.place(broker), await latest(await trio.client(trio.partition.leader))) == (target, (0, value + 1))


async def test_configs_altered_during_a_move_hold_after_it(trio: TwoDirectories, make_batch: Any) -> None:
    await trio.create([1])
    client = await trio.client(1)
    await client.produce("t", make_batch(b"v" * 1000))
    source, target = ("a", "b") if trio.place(1) == "a" else ("b", "a")
    await configure(client, BROKER, "", {THROTTLE: "1"})
    assert await move(trio, 1, target) == ErrorCode.NONE
    await configure(client, TOPIC, "t", {"max.message.bytes": "500"})
    assert trio.place(1) == source
    await configure(client, BROKER, "", {THROTTLE: "1000000"})
    await trio.until(lambda: trio.place(1) == target)
    refused = await client.produce("t", make_batch(b"v" * 1000))
    assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE


async def test_a_move_continues_after_a_restart(trio: TwoDirectories, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    source, target = ("a", "b") if trio.place(1) == "a" else ("b", "a")
    for _ in range(5):
        await client.produce("t", make_batch(b"v" * 1000))
    await configure(client, BROKER, "", {THROTTLE: "1"})
    assert await move(trio, 1, target) == ErrorCode.NONE
    future = trio.hosted(1).future
    assert future is not None
    await trio.until(lambda: future.log_end_offset == 5)
    await client.produce("t", make_batch(b"v" * 1000))
    assert await described(client) == {source: [(0, False)], target: [(1, True)]}
    await trio.cluster.kill_broker(1)
    await (await trio.client(2)).produce("t", make_batch(b"w"))
    await configure(await trio.client(2), BROKER, "", {THROTTLE: "1000000"})
    await trio.cluster.start_broker(trio.static(1))
    await trio.until(lambda: trio.place(1) == target)
    await trio.until_in_sync(1, 2)
    assert trio.bytes_of(1) == trio.bytes_of(2)
    await trio.until(lambda: trio.controller_agrees(1))


async def test_a_future_log_is_truncated_with_the_current_log(trio: TwoDirectories, make_batch: Any) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    target = "b" if trio.place(1) == "a" else "a"
    await client.produce("t", make_batch(b"a"))
    trio.hold_back(1)
    await client.produce("t", make_batch(b"only here"), acks=1)
    await configure(client, BROKER, "1", {THROTTLE: "1"})
    await move(trio, 1, target)
    future = trio.hosted(1).future
    assert future is not None
    await trio.until(lambda: future.log_end_offset == 2)
    await trio.cluster.kill_broker(1)
    client = await trio.client(2)
    await client.produce("t", make_batch(b"b"))
    await trio.cluster.start_broker(trio.static(1))
    await trio.until_in_sync(1, 2)
    await configure(await trio.client(1), BROKER, "1", {THROTTLE: "1000000"})
    await trio.until(lambda: trio.place(1) == target)
    assert trio.bytes_of(1) == trio.bytes_of(2)


async def test_the_cleaner_checkpoint_moves_with_the_log(trio: TwoDirectories) -> None:
    await trio.create([1, 2], cleanup_policy="compact")
    client = await trio.client(1)
    for _ in range(5):
        assert (await client.produce("t", bytes(keyed((b"k", b"v"))))).error_code == ErrorCode.NONE
    trio.hosted(1).log.roll()
    await trio.cluster.clean_logs()
    assert trio.hosted(1).log.cleaner.checkpoint == 5
    source, target = ("a", "b") if trio.place(1) == "a" else ("b", "a")
    assert await move(trio, 1, target) == ErrorCode.NONE
    await trio.until(lambda: trio.place(1) == target)
    assert trio.hosted(1).log.cleaner.checkpoint == 5
    assert left(trio.hosted(1).log) == [(4, b"k", b"v")]
    for each in trio.cluster.nodes[1].directories:
        each.prepare_cleaner_checkpoint()
        each.write_cleaner_checkpoint()
    written = [Path(trio.directory(1, name), "cleaner-offset-checkpoint") for name in (target, source)]
    assert [file.read_text() for file in written] == ["0\n1\nt 0 5\n", "0\n0\n"]


async def test_a_move_is_cancelled_by_moving_back_and_ends_with_its_topic(
    trio: TwoDirectories, make_batch: Any
) -> None:
    await trio.create([1, 2])
    client = await trio.client(1)
    source, target = ("a", "b") if trio.place(1) == "a" else ("b", "a")
    await client.produce("t", make_batch(b"a"))
    await configure(client, BROKER, "1", {THROTTLE: "0"})
    for _ in range(2):
        assert await move(trio, 1, target) == ErrorCode.NONE
    assert trio.names(1, target) == {"future"}
    assert await move(trio, 1, source) == ErrorCode.NONE
    assert (trio.hosted(1).future, trio.names(1, target)) == (None, {"delete"})
    assert await move(trio, 1, target) == ErrorCode.NONE
    topic_id = trio.cluster.controller.image.topics["t"].id
    request = DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState(topic_id=topic_id)], timeout_ms=1000)
    assert (await client.ask(request, 6)).responses[0].error_code == 0
    assert trio.names(1, source) | trio.names(1, target) == {"delete"}


async def test_a_move_to_an_unknown_directory_or_of_an_unknown_replica_fails(
    trio: TwoDirectories, make_batch: Any
) -> None:
    await trio.create([1])
    assert await move(trio, 1, "c") == ErrorCode.LOG_DIR_NOT_FOUND
    assert await move(trio, 2, "b") == ErrorCode.REPLICA_NOT_AVAILABLE
    client = await trio.client(1)
    await client.produce("t", make_batch(b"a"))
    partition = AlterPartitionReassignmentsRequest.ReassignablePartition(0, [2])
    topic = AlterPartitionReassignmentsRequest.ReassignableTopic("t", [partition])
    await client.ask(AlterPartitionReassignmentsRequest(topics=[topic]), 1)
    await trio.until(lambda: trio.partition.replicas == (2,))
    assert trio.place(2) == "b"
    await trio.until(lambda: trio.controller_agrees(2))
    assert bytes((await fetch(await trio.client(2))).records) == trio.bytes_of(2)


async def test_a_new_replica_is_created_in_the_preferred_directory(trio: TwoDirectories) -> None:
    assert await move(trio, 1, "b") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await trio.create([1])
    assert trio.place(1) == "b"


async def test_a_crash_between_the_last_steps_of_a_move_leaves_one_log(trio: TwoDirectories, make_batch: Any) -> None:
    await trio.create([1])
    client = await trio.client(1)
    source, target = ("a", "b") if trio.place(1) == "a" else ("b", "a")
    await client.produce("t", make_batch(b"a"))
    await move(trio, 1, target)
    await trio.until(lambda: trio.place(1) == target)
    await trio.until(lambda: trio.controller_agrees(1))
    await trio.cluster.kill_broker(1)
    (left,) = Path(trio.directory(1, source)).glob("t-0.*-delete")
    left.rename(left.with_name("t-0"))
    await trio.cluster.start_broker(trio.static(1))
    assert (trio.place(1), trio.names(1, source)) == (target, {"stray"})
    assert await latest(await trio.client(1)) == (0, 1)
    await asyncio.sleep(0)


async def test_an_abandoned_future_log_is_promoted_after_its_disk_is_replaced(
    trio: TwoDirectories, make_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trio.create([1])
    client = await trio.client(1)
    source, target = ("a", "b") if trio.place(1) == "a" else ("b", "a")
    for _ in range(5):
        await client.produce("t", make_batch(b"v" * 1000))
    executor = trio.cluster.nodes[1].broker.executor
    reached = asyncio.Event()

    async def held(_: Any) -> None:
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(executor, "run_and_wait", held)
    assert await move(trio, 1, target) == ErrorCode.NONE
    await reached.wait()
    await trio.cluster.kill_broker(1)
    shutil.rmtree(trio.directory(1, source))
    await trio.cluster.start_broker(trio.static(1))
    await trio.until(lambda: trio.partition.leader == 1)
    assert (trio.place(1), trio.names(1, target), trio.names(1, source)) == (target, {"t-0"}, set())
    client = await trio.client(1)
    assert await latest(client) == (0, 5)
    assert (await client.produce("t", make_batch(b"w"))).base_offset == 5


async def test_a_move_with_an_unexpected_error_is_cancelled_and_others_continue(
    trio: TwoDirectories, make_batch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await trio.create([1])
    client = await trio.client(1)
    source, target = ("a", "b") if trio.place(1) == "a" else ("b", "a")
    await client.produce("t", make_batch(b"a"))

    def fail(*_: Any) -> int:
        raise ValueError("planted")

    with monkeypatch.context() as patch:
        patch.setattr(moves, "copy", fail)
        assert await move(trio, 1, target) == ErrorCode.NONE
        await trio.until(lambda: trio.hosted(1).future is None)
    assert (trio.place(1), trio.names(1, target)) == (source, {"delete"})
    assert await move(trio, 1, target) == ErrorCode.NONE
    await trio.until(lambda: trio.place(1) == target)
    assert await latest(client) == (0, 1)
