"""The controller: the order of changes, reads, and listeners."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from controller.tests.controller_kit import context, join, running, topics

from odradek_controller.image import ClusterImage, MetadataDelta
from odradek_log.reporting import StandardReporter
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_quorum import DescribeQuorumRequest
from odradek_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


async def test_a_read_only_request_does_not_wait_for_a_change_in_progress(tmp_path: Path) -> None:
    flushing, may_flush = asyncio.Event(), asyncio.Event()
    may_flush.set()

    async def run_flush(flush: Callable[[], None]) -> None:
        flushing.set()
        await may_flush.wait()
        flush()

    async with running(tmp_path, run_flush=run_flush) as controller:
        await join(controller, 1, 11)
        flushing.clear()
        may_flush.clear()
        creation = asyncio.ensure_future(controller.submit(topics("t")))
        await flushing.wait()
        try:
            async with asyncio.timeout(30):
                listed = await controller.submit(ListPartitionReassignmentsRequest())
                described = await controller.submit(DescribeQuorumRequest())
            assert (creation.done(), list(controller.image.topics)) == (False, [])
        finally:
            may_flush.set()
        assert (listed, described.error_code) == (ListPartitionReassignmentsResponse(), ErrorCode.NONE)
        assert (await creation).topics[0].error_code == ErrorCode.NONE
        assert list(controller.image.topics) == ["t"]


async def test_listeners_get_the_image_and_then_each_delta_in_order(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        await join(controller, 1, 11)
        await controller.submit(topics("a"))
        seen: list[MetadataDelta] = []
        unsubscribe = controller.subscribe(seen.append)
        await controller.submit(topics("b"))
        await controller.submit(topics("b"))
        unsubscribe()
        await controller.submit(topics("c"))
    first, second = seen
    assert (first.before.topics, sorted(first.image.topics), first.brokers) == ({}, ["a"], frozenset({1}))
    assert second.before is first.image
    assert second.partitions == {second.image.topics["b"].id: (0,)}


async def test_a_failed_listener_stops_neither_the_change_nor_others(tmp_path: Path) -> None:
    logged: list[tuple[str, dict[str, object]]] = []

    class Recorder(StandardReporter):
        def error(self, event: str, /, **fields: object) -> None:
            logged.append((event, fields))

    failure = RuntimeError("cannot")
    before, after = [], []

    def failing(delta: MetadataDelta) -> None:
        if delta.partitions:
            raise failure

    async with running(tmp_path, reporter=Recorder()) as controller:
        await join(controller, 1, 11)
        controller.subscribe(before.append)
        controller.subscribe(failing)
        controller.subscribe(after.append)
        for name in ("a", "b"):
            response = await controller.submit(topics(name))
            assert response.topics[0].error_code == ErrorCode.NONE
        assert sorted(controller.image.topics) == ["a", "b"]
        offset = controller.image.offset
    assert [list(delta.image.topics) for delta in before[1:]] == [["a"], ["a", "b"]]
    assert before[1:] == after[1:]
    assert logged[-1] == ("listener failed to apply a metadata change", {"offset": offset, "exc_info": failure})
    assert len(logged) == 2


async def test_listeners_take_the_steps_of_a_delta_together(tmp_path: Path) -> None:
    taken: list[tuple[str, int]] = []

    def listener(name: str, failing_step: int = -1) -> Callable[[MetadataDelta], AsyncIterator[None] | None]:
        async def steps() -> AsyncIterator[None]:
            for step in range(3):
                await asyncio.sleep(0)
                taken.append((name, step))
                if step == failing_step:
                    raise RuntimeError("cannot")
                yield

        return lambda delta: steps() if delta.partitions else None

    async with running(tmp_path) as controller:
        await join(controller, 1, 11)
        for each in (listener("a"), listener("b", failing_step=1), listener("c")):
            controller.subscribe(each)
        await controller.submit(topics("t"))
    assert taken == [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("b", 1), ("c", 1), ("a", 2), ("c", 2)]


def test_the_controller_uses_its_own_static_configuration() -> None:
    assert context({"num.partitions": "7"}).number(ClusterImage(), "num.partitions") == 7


async def test_a_closed_controller_fences_its_brokers(tmp_path: Path) -> None:
    seen: list[MetadataDelta] = []
    async with running(tmp_path) as controller:
        await join(controller, 1, 11)
        controller.subscribe(seen.append)
    assert len(seen) == 1
    async with running(tmp_path) as controller:
        assert controller.image.brokers[1].fenced
