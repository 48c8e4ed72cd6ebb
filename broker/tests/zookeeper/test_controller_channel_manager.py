"""The requests that each broker gets for a change, their order and their retries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import structlog

from odradek_broker.inter_broker.broker_connection import BrokerConnectionError
from odradek_broker.inter_broker.channel import BrokerChannel
from odradek_broker.zookeeper.broker_requests import INCREMENTAL
from odradek_broker.zookeeper.control_request_adapter import EPOCH_DURING_DELETE, FULL, LEADER_DURING_DELETE
from odradek_broker.zookeeper.controller_channel_manager import BACKOFF_MS, ControllerChannelManager
from odradek_controller.image import (
    LOST_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerRegistration,
    ClusterImage,
    Endpoint,
    MetadataDelta,
    PartitionRegistration,
    TopicImage,
)
from odradek_controller.zookeeper.topic_deletion import TopicDeletionManager
from odradek_wire.apis import APIS
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek_wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek_wire.messages.update_metadata import UpdateMetadataRequest
from odradek_wire.uuid import ZERO_UUID, Uuid

T = Uuid(bytes(15) + b"t")
CONTROLLER = 1


def image(
    brokers: Iterable[int], *partitions: PartitionRegistration, epochs: dict[int, int] | None = None, **rest: Any
) -> ClusterImage:
    topics = {"t": TopicImage(T, "t", partitions)} if partitions else {}
    registrations = {
        each: BrokerRegistration(
            each,
            (epochs or {}).get(each, 100 + each),
            ZERO_UUID,
            (Endpoint("PLAINTEXT", "host", 9000 + each),),
            (),
            None,
            False,
            in_controlled_shutdown=each in rest.get("going", ()),
        )
        for each in brokers
    }
    return ClusterImage(
        epoch=4, brokers=registrations, topics=topics, topics_by_id={topic.id: topic for topic in topics.values()}
    )


def partition(replicas: tuple[int, ...], leader: int, epoch: int = 0, isr: tuple[int, ...] | None = None) -> Any:
    return PartitionRegistration(replicas, replicas if isr is None else isr, leader, epoch, epoch)


class Recorder:
    """Brokers that record their requests; they can be down, or return errors."""

    def __init__(self) -> None:
        self.told: dict[int, list[Message]] = {}
        self.down: set[int] = set()
        self.failures = 0
        self.answer: Message | None = None

    def channel(self, registration: BrokerRegistration) -> BrokerChannel:
        async def connect(endpoint: Endpoint, client_id: str, timeout_s: float) -> Wire:
            if registration.id in self.down:
                raise BrokerConnectionError("down")
            return Wire(self, registration.id)

        return BrokerChannel(
            f"broker {registration.id}",
            lambda: registration.endpoint("PLAINTEXT"),
            client_id=str(CONTROLLER),
            timeout_s=1,
            backoff_ms=BACKOFF_MS,
            connect=connect,
        )

    async def sleep(self, delay_ms: int) -> None:
        self.failures += 1
        await asyncio.sleep(0)

    def take(self, broker_id: int) -> list[Message]:
        return self.told.pop(broker_id, [])


class Wire:
    closed = False

    def __init__(self, recorder: Recorder, broker_id: int) -> None:
        self._recorder = recorder
        self._broker_id = broker_id

    async def request(self, request: Message, version: int, answer: type[Any], timeout_s: float) -> Any:
        if self._broker_id in self._recorder.down:
            raise BrokerConnectionError("down")
        assert version == APIS[request.API_KEY].versions[1]
        self._recorder.told.setdefault(self._broker_id, []).append(request)
        if isinstance(self._recorder.answer, answer):
            return self._recorder.answer
        return answer()

    def close(self) -> None:
        pass


class BrokerResponseHandler:
    """A controller that records the reports of brokers."""

    def __init__(self) -> None:
        self.deletions = TopicDeletionManager()
        self.unreadable: set[str] = set()
        self.found: list[tuple[int, int, set[Any], set[Any]]] = []
        self.heard: list[tuple[int, set[Any], set[Any]]] = []

    def replicas_deleted(self, broker: BrokerRegistration, deleted: Any, failed: Any) -> None:
        self.heard.append((broker.id, set(deleted), set(failed)))
        self.deletions.complete_replica_deletion(broker.id, deleted)

    async def replicas_reported(self, broker: BrokerRegistration, lost: Any, served: Any) -> None:
        self.found.append((broker.id, broker.epoch, set(lost), set(served)))


class World:
    def __init__(self) -> None:
        self.brokers = Recorder()
        self.term = BrokerResponseHandler()
        self.manager = ControllerChannelManager(
            CONTROLLER,
            self.term,
            self.brokers.channel,
            self.brokers.sleep,
            structlog.get_logger("test"),
        )
        self.image = ClusterImage()

    async def become(self, after: ClusterImage) -> None:
        before, self.image = self.image, after
        self.manager.apply(MetadataDelta.between(before, after))
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def world() -> Any:
    found = World()
    yield found
    await found.manager.close()


def kinds(told: list[Message]) -> list[type[Message]]:
    return [type(each) for each in told]


async def test_a_new_broker_gets_the_full_state(world: World) -> None:
    await world.become(image([1, 2], partition((1, 2), 1), partition((1,), 1)))
    metadata, given = world.brokers.take(2)
    assert isinstance(metadata, UpdateMetadataRequest)
    assert (metadata.type, metadata.controller_id, metadata.controller_epoch, metadata.broker_epoch) == (
        FULL,
        CONTROLLER,
        4,
        102,
    )
    assert [each.partition_index for each in metadata.topic_states[0].partition_states] == [0, 1]
    assert [(each.id, each.endpoints[0].port) for each in metadata.live_brokers] == [(1, 9001), (2, 9002)]
    assert isinstance(given, LeaderAndIsrRequest)
    assert (given.type, given.topic_states[0].topic_id) == (FULL, T)
    assert [each.partition_index for each in given.topic_states[0].partition_states] == [0]


async def test_requests_are_incremental_while_a_topic_cannot_be_read(world: World) -> None:
    world.term.unreadable.add("damaged")
    with structlog.testing.capture_logs() as logged:
        await world.become(image([1], partition((1,), 1)))
    assert [(each["to"], each["topics"]) for each in logged] == [(1, ["damaged"])]
    assert [each.type for each in world.brokers.take(1)] == [INCREMENTAL] * 2  # type: ignore[attr-defined]
    world.term.unreadable.clear()
    await world.become(image([1], partition((1,), 1, 1)))
    assert [each.type for each in world.brokers.take(1)] == [FULL] * 2  # type: ignore[attr-defined]
    await world.become(image([1], partition((1,), 1, 2)))
    assert [each.type for each in world.brokers.take(1)] == [INCREMENTAL] * 2  # type: ignore[attr-defined]


async def test_a_change_goes_to_replicas_and_metadata_to_all_brokers(world: World) -> None:
    await world.become(image([1, 2, 3], partition((1, 2), 1)))
    world.brokers.told.clear()
    await world.become(image([1, 2, 3], partition((1, 2), 2, 1)))
    given, shown = world.brokers.take(1)
    assert isinstance(given, LeaderAndIsrRequest)
    (state,) = given.topic_states[0].partition_states
    assert (state.leader, state.leader_epoch, state.is_new) == (2, 1, False)
    assert isinstance(shown, UpdateMetadataRequest)
    assert kinds(world.brokers.take(3)) == [UpdateMetadataRequest]


async def test_a_new_partition_is_marked_as_new(world: World) -> None:
    await world.become(image([1]))
    world.brokers.told.clear()
    await world.become(image([1], partition((1,), 1)))
    given = world.brokers.take(1)[0]
    assert isinstance(given, LeaderAndIsrRequest)
    assert [each.is_new for each in given.topic_states[0].partition_states] == [True]


async def test_a_removed_replica_is_deleted(world: World) -> None:
    await world.become(image([1, 2, 3], partition((1, 2), 1)))
    world.brokers.told.clear()
    await world.become(image([1, 2, 3], partition((1, 3), 1, 1)))
    shown, stop = world.brokers.take(2)
    assert isinstance(shown, UpdateMetadataRequest)
    assert isinstance(stop, StopReplicaRequest)
    (state,) = stop.topic_states[0].partition_states
    assert (state.partition_index, state.leader_epoch, state.delete_partition) == (0, 1, True)


async def test_a_deleted_topic_is_hidden_first_and_then_deleted(world: World) -> None:
    before = image([1, 2], partition((1, 2), 1))
    await world.become(before)
    world.brokers.told.clear()
    world.term.deletions.begin([before.topics["t"]])
    await world.become(image([1, 2], partition((1, 2), 2, 1)))
    for broker in (1, 2):
        shown, stop = world.brokers.take(broker)
        assert isinstance(shown, UpdateMetadataRequest)
        assert shown.topic_states[0].partition_states[0].leader == LEADER_DURING_DELETE
        assert isinstance(stop, StopReplicaRequest)
        (state,) = stop.topic_states[0].partition_states
        assert (state.leader_epoch, state.delete_partition) == (EPOCH_DURING_DELETE, True)
    assert sorted(world.term.heard) == [(1, {("t", 0)}, set()), (2, {("t", 0)}, set())]
    await world.become(image([1, 2]))
    assert world.brokers.told == {}


async def test_a_restarted_broker_first_gets_its_pending_deletions(world: World) -> None:
    before = image([1], partition((1, 2), 1), partition((2,), -1))
    await world.become(before)
    world.term.deletions.begin([before.topics["t"]])
    refusals = [StopReplicaResponse.StopReplicaPartitionError("t", 1, ErrorCode.KAFKA_STORAGE_ERROR)]
    world.brokers.answer = StopReplicaResponse(partition_errors=refusals)
    await world.become(replace(before, brokers=image([1, 2]).brokers))
    stop, shown, given = world.brokers.take(2)
    assert isinstance(stop, StopReplicaRequest)
    assert [state.partition_index for state in stop.topic_states[0].partition_states] == [0, 1]
    assert isinstance(shown, UpdateMetadataRequest)
    assert {state.leader for state in shown.topic_states[0].partition_states} == {LEADER_DURING_DELETE}
    assert isinstance(given, LeaderAndIsrRequest)
    assert given.topic_states == []
    assert world.term.heard[-1] == (2, {("t", 0)}, {("t", 1)})
    assert world.term.deletions.remaining_replicas(2) == [("t", 1)]


async def test_a_topic_whose_znode_was_removed_is_deleted(world: World) -> None:
    await world.become(image([1, 2], partition((1,), 1)))
    world.brokers.told.clear()
    await world.become(image([1, 2]))
    shown, stop = world.brokers.take(1)
    assert isinstance(shown, UpdateMetadataRequest)
    assert shown.topic_states[0].partition_states[0].leader == LEADER_DURING_DELETE
    assert isinstance(stop, StopReplicaRequest)
    (state,) = stop.topic_states[0].partition_states
    assert (state.leader_epoch, state.delete_partition) == (EPOCH_DURING_DELETE, True)
    assert kinds(world.brokers.take(2)) == [UpdateMetadataRequest]


async def test_a_follower_in_controlled_shutdown_is_stopped(world: World) -> None:
    await world.become(image([1, 2], partition((1, 2), 1)))
    world.brokers.told.clear()
    await world.become(image([1, 2], partition((1, 2), 1, 1, isr=(1,)), going=(2,)))
    stop = world.brokers.take(2)[-1]
    assert isinstance(stop, StopReplicaRequest)
    assert [each.delete_partition for each in stop.topic_states[0].partition_states] == [False]
    assert kinds(world.brokers.take(1)) == [LeaderAndIsrRequest, UpdateMetadataRequest]


async def test_a_broker_that_registers_again_gets_the_full_state(world: World) -> None:
    await world.become(image([1, 2], partition((1, 2), 1)))
    world.brokers.told.clear()
    await world.become(image([1, 2], partition((1, 2), 1), epochs={2: 500}))
    told = world.brokers.take(2)
    assert [(each.type, each.broker_epoch) for each in told] == [(FULL, 500)] * 2  # type: ignore[attr-defined]
    assert kinds(world.brokers.take(1)) == [UpdateMetadataRequest]


async def test_an_unreachable_broker_gets_all_requests_in_order_later(world: World) -> None:
    world.brokers.down.add(2)
    await world.become(image([1, 2], partition((1, 2), 1)))
    await world.become(image([1, 2], partition((1, 2), 2, 1)))
    assert world.brokers.take(2) == []
    assert world.brokers.failures > 0
    world.brokers.down.clear()
    await world.become(world.image)
    assert kinds(world.brokers.take(2)) == [
        UpdateMetadataRequest,
        LeaderAndIsrRequest,
        LeaderAndIsrRequest,
        UpdateMetadataRequest,
    ]


async def test_an_unregistered_broker_gets_no_requests(world: World) -> None:
    world.brokers.down.add(2)
    await world.become(image([1, 2], partition((1, 2), 1)))
    await world.become(image([1], partition((1, 2), 1, 1, isr=(1,))))
    world.brokers.down.clear()
    await world.become(world.image)
    assert world.brokers.take(2) == []


async def test_a_change_in_progress_at_the_end_of_the_term_is_not_sent(world: World) -> None:
    await world.become(image([1, 2], partition((1, 2), 1)))
    assert len(world.brokers.take(2)) == 2
    await world.manager.close()
    await world.become(image([1, 2], partition((1, 2), 2, 1)))
    assert world.brokers.take(2) == []


async def test_the_full_state_replaces_a_queue_that_is_too_long(world: World) -> None:
    world.brokers.down.add(2)
    await world.become(image([1, 2], partition((1, 2), 1)))
    for epoch in range(1, 600):
        world.manager.apply(MetadataDelta.between(world.image, after := image([1, 2], partition((1, 2), 1, epoch))))
        world.image = after
    world.brokers.down.clear()
    for _ in range(3000):
        await asyncio.sleep(0)
    told = world.brokers.take(2)
    assert len(told) < 1000
    last = [each for each in told if isinstance(each, LeaderAndIsrRequest)][-1]
    assert last.topic_states[0].partition_states[0].leader_epoch == 599


async def test_a_storage_error_reports_a_lost_replica(world: World) -> None:
    errors = [LeaderAndIsrResponse.LeaderAndIsrPartitionError("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)]
    world.brokers.answer = LeaderAndIsrResponse(topics=[LeaderAndIsrResponse.LeaderAndIsrTopicError(T, errors)])
    with structlog.testing.capture_logs() as logged:
        await world.become(image([1], partition((1,), 1)))
    assert [(each["log_level"], each["to"], each["errors"]) for each in logged] == [
        ("error", 1, {"KAFKA_STORAGE_ERROR": 1})
    ]
    assert world.term.found == [(1, 101, {(T, 0)}, set())]


async def test_a_repaired_disk_is_reported_once(world: World) -> None:
    lost = partition((1, 2), 2)._replace(directories=(LOST_DIRECTORY, UNASSIGNED_DIRECTORY))
    answers = [LeaderAndIsrResponse.LeaderAndIsrPartitionError("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)]
    world.brokers.answer = LeaderAndIsrResponse(topics=[LeaderAndIsrResponse.LeaderAndIsrTopicError(T, answers)])
    await world.become(image([1], lost))
    assert world.term.found == []
    answers[0].error_code = ErrorCode.STALE_CONTROLLER_EPOCH
    world.manager.request_lost_replicas([1, 7])
    await world.become(world.image)
    assert world.term.found == []
    answers[0].error_code = ErrorCode.NONE
    world.manager.request_lost_replicas([1])
    await world.become(world.image)
    assert world.term.found == [(1, 101, set(), {(T, 0)})]


async def test_after_a_disk_failure_the_broker_gets_a_request_for_its_replicas(world: World) -> None:
    await world.become(image([1, 2], partition((1, 2), 1), partition((2,), 2)))
    world.brokers.told.clear()
    world.manager.request_lost_replicas([1])
    lost = partition((1, 2), 2, 1, isr=(2,))._replace(directories=(LOST_DIRECTORY, UNASSIGNED_DIRECTORY))
    await world.become(image([1, 2], lost, partition((2,), 2)))
    asked, given, shown = world.brokers.take(1)
    assert isinstance(asked, LeaderAndIsrRequest)
    assert [each.partition_index for each in asked.topic_states[0].partition_states] == [0]
    assert asked.type == INCREMENTAL
    assert isinstance(given, LeaderAndIsrRequest)
    assert isinstance(shown, UpdateMetadataRequest)
    assert shown.topic_states[0].partition_states[0].offline_replicas == [1]
