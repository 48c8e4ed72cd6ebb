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
            in_controlled_shutdown=each in rest.get("in_controlled_shutdown", ()),
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
        self.requests: dict[int, list[Message]] = {}
        self.down: set[int] = set()
        self.failures = 0
        self.response: Message | None = None

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
        """Return the recorded requests to a broker, and forget them."""
        return self.requests.pop(broker_id, [])


class Wire:
    closed = False

    def __init__(self, recorder: Recorder, broker_id: int) -> None:
        self._recorder = recorder
        self._broker_id = broker_id

    async def request(self, request: Message, version: int, response: type[Any], timeout_s: float) -> Any:
        if self._broker_id in self._recorder.down:
            raise BrokerConnectionError("down")
        assert version == APIS[request.API_KEY].versions[1]
        self._recorder.requests.setdefault(self._broker_id, []).append(request)
        if isinstance(self._recorder.response, response):
            return self._recorder.response
        return response()

    def close(self) -> None:
        pass


class RecordingHandler:
    """A controller that records the reports of brokers."""

    def __init__(self) -> None:
        self.deletions = TopicDeletionManager()
        self.unreadable: set[str] = set()
        self.reported: list[tuple[int, int, set[Any], set[Any]]] = []
        self.deleted: list[tuple[int, set[Any], set[Any]]] = []

    def replicas_deleted(self, broker: BrokerRegistration, deleted: Any, failed: Any) -> None:
        self.deleted.append((broker.id, set(deleted), set(failed)))
        self.deletions.complete_replica_deletion(broker.id, deleted)

    async def replicas_reported(self, broker: BrokerRegistration, lost: Any, served: Any) -> None:
        self.reported.append((broker.id, broker.epoch, set(lost), set(served)))


class World:
    """The channel manager of a controller, its image, and recorded brokers."""

    def __init__(self) -> None:
        self.brokers = Recorder()
        self.handler = RecordingHandler()
        self.manager = ControllerChannelManager(
            CONTROLLER,
            self.handler,
            self.brokers.channel,
            self.brokers.sleep,
            structlog.get_logger("test"),
        )
        self.image = ClusterImage()

    async def apply(self, after: ClusterImage) -> None:
        before, self.image = self.image, after
        self.manager.apply(MetadataDelta.between(before, after))
        for _ in range(20):
            await asyncio.sleep(0)


@pytest.fixture
async def world() -> Any:
    world = World()
    yield world
    await world.manager.close()


def types(requests: list[Message]) -> list[type[Message]]:
    return [type(each) for each in requests]


async def test_a_new_broker_gets_the_full_state(world: World) -> None:
    await world.apply(image([1, 2], partition((1, 2), 1), partition((1,), 1)))
    metadata, leader_and_isr = world.brokers.take(2)
    assert isinstance(metadata, UpdateMetadataRequest)
    assert (metadata.type, metadata.controller_id, metadata.controller_epoch, metadata.broker_epoch) == (
        FULL,
        CONTROLLER,
        4,
        102,
    )
    assert [each.partition_index for each in metadata.topic_states[0].partition_states] == [0, 1]
    assert [(each.id, each.endpoints[0].port) for each in metadata.live_brokers] == [(1, 9001), (2, 9002)]
    assert isinstance(leader_and_isr, LeaderAndIsrRequest)
    assert (leader_and_isr.type, leader_and_isr.topic_states[0].topic_id) == (FULL, T)
    assert [each.partition_index for each in leader_and_isr.topic_states[0].partition_states] == [0]


async def test_requests_are_incremental_while_a_topic_cannot_be_read(world: World) -> None:
    world.handler.unreadable.add("damaged")
    with structlog.testing.capture_logs() as logged:
        await world.apply(image([1], partition((1,), 1)))
    assert [(each["to"], each["topics"]) for each in logged] == [(1, ["damaged"])]
    assert [each.type for each in world.brokers.take(1)] == [INCREMENTAL] * 2  # type: ignore[attr-defined]
    world.handler.unreadable.clear()
    await world.apply(image([1], partition((1,), 1, 1)))
    assert [each.type for each in world.brokers.take(1)] == [FULL] * 2  # type: ignore[attr-defined]
    await world.apply(image([1], partition((1,), 1, 2)))
    assert [each.type for each in world.brokers.take(1)] == [INCREMENTAL] * 2  # type: ignore[attr-defined]


async def test_a_change_goes_to_replicas_and_metadata_to_all_brokers(world: World) -> None:
    await world.apply(image([1, 2, 3], partition((1, 2), 1)))
    world.brokers.requests.clear()
    await world.apply(image([1, 2, 3], partition((1, 2), 2, 1)))
    leader_and_isr, metadata = world.brokers.take(1)
    assert isinstance(leader_and_isr, LeaderAndIsrRequest)
    (state,) = leader_and_isr.topic_states[0].partition_states
    assert (state.leader, state.leader_epoch, state.is_new) == (2, 1, False)
    assert isinstance(metadata, UpdateMetadataRequest)
    assert types(world.brokers.take(3)) == [UpdateMetadataRequest]


async def test_a_new_partition_is_marked_as_new(world: World) -> None:
    await world.apply(image([1]))
    world.brokers.requests.clear()
    await world.apply(image([1], partition((1,), 1)))
    leader_and_isr = world.brokers.take(1)[0]
    assert isinstance(leader_and_isr, LeaderAndIsrRequest)
    assert [each.is_new for each in leader_and_isr.topic_states[0].partition_states] == [True]


async def test_a_removed_replica_is_deleted(world: World) -> None:
    await world.apply(image([1, 2, 3], partition((1, 2), 1)))
    world.brokers.requests.clear()
    await world.apply(image([1, 2, 3], partition((1, 3), 1, 1)))
    metadata, stop = world.brokers.take(2)
    assert isinstance(metadata, UpdateMetadataRequest)
    assert isinstance(stop, StopReplicaRequest)
    (state,) = stop.topic_states[0].partition_states
    assert (state.partition_index, state.leader_epoch, state.delete_partition) == (0, 1, True)


async def test_a_deleted_topic_is_hidden_first_and_then_deleted(world: World) -> None:
    before = image([1, 2], partition((1, 2), 1))
    await world.apply(before)
    world.brokers.requests.clear()
    world.handler.deletions.begin([before.topics["t"]])
    await world.apply(image([1, 2], partition((1, 2), 2, 1)))
    for broker in (1, 2):
        metadata, stop = world.brokers.take(broker)
        assert isinstance(metadata, UpdateMetadataRequest)
        assert metadata.topic_states[0].partition_states[0].leader == LEADER_DURING_DELETE
        assert isinstance(stop, StopReplicaRequest)
        (state,) = stop.topic_states[0].partition_states
        assert (state.leader_epoch, state.delete_partition) == (EPOCH_DURING_DELETE, True)
    assert sorted(world.handler.deleted) == [(1, {("t", 0)}, set()), (2, {("t", 0)}, set())]
    await world.apply(image([1, 2]))
    assert world.brokers.requests == {}


async def test_a_restarted_broker_first_gets_its_pending_deletions(world: World) -> None:
    before = image([1], partition((1, 2), 1), partition((2,), -1))
    await world.apply(before)
    world.handler.deletions.begin([before.topics["t"]])
    refusals = [StopReplicaResponse.StopReplicaPartitionError("t", 1, ErrorCode.KAFKA_STORAGE_ERROR)]
    world.brokers.response = StopReplicaResponse(partition_errors=refusals)
    await world.apply(replace(before, brokers=image([1, 2]).brokers))
    stop, metadata, leader_and_isr = world.brokers.take(2)
    assert isinstance(stop, StopReplicaRequest)
    assert [state.partition_index for state in stop.topic_states[0].partition_states] == [0, 1]
    assert isinstance(metadata, UpdateMetadataRequest)
    assert {state.leader for state in metadata.topic_states[0].partition_states} == {LEADER_DURING_DELETE}
    assert isinstance(leader_and_isr, LeaderAndIsrRequest)
    assert leader_and_isr.topic_states == []
    assert world.handler.deleted[-1] == (2, {("t", 0)}, {("t", 1)})
    assert world.handler.deletions.remaining_replicas(2) == [("t", 1)]


async def test_a_topic_whose_znode_was_removed_is_deleted(world: World) -> None:
    await world.apply(image([1, 2], partition((1,), 1)))
    world.brokers.requests.clear()
    await world.apply(image([1, 2]))
    metadata, stop = world.brokers.take(1)
    assert isinstance(metadata, UpdateMetadataRequest)
    assert metadata.topic_states[0].partition_states[0].leader == LEADER_DURING_DELETE
    assert isinstance(stop, StopReplicaRequest)
    (state,) = stop.topic_states[0].partition_states
    assert (state.leader_epoch, state.delete_partition) == (EPOCH_DURING_DELETE, True)
    assert types(world.brokers.take(2)) == [UpdateMetadataRequest]


async def test_a_follower_in_controlled_shutdown_is_stopped(world: World) -> None:
    await world.apply(image([1, 2], partition((1, 2), 1)))
    world.brokers.requests.clear()
    await world.apply(image([1, 2], partition((1, 2), 1, 1, isr=(1,)), in_controlled_shutdown=(2,)))
    stop = world.brokers.take(2)[-1]
    assert isinstance(stop, StopReplicaRequest)
    assert [each.delete_partition for each in stop.topic_states[0].partition_states] == [False]
    assert types(world.brokers.take(1)) == [LeaderAndIsrRequest, UpdateMetadataRequest]


async def test_a_broker_that_registers_again_gets_the_full_state(world: World) -> None:
    await world.apply(image([1, 2], partition((1, 2), 1)))
    world.brokers.requests.clear()
    await world.apply(image([1, 2], partition((1, 2), 1), epochs={2: 500}))
    requests = world.brokers.take(2)
    assert [(each.type, each.broker_epoch) for each in requests] == [(FULL, 500)] * 2  # type: ignore[attr-defined]
    assert types(world.brokers.take(1)) == [UpdateMetadataRequest]


async def test_an_unreachable_broker_gets_all_requests_in_order_later(world: World) -> None:
    world.brokers.down.add(2)
    await world.apply(image([1, 2], partition((1, 2), 1)))
    await world.apply(image([1, 2], partition((1, 2), 2, 1)))
    assert world.brokers.take(2) == []
    assert world.brokers.failures > 0
    world.brokers.down.clear()
    await world.apply(world.image)
    assert types(world.brokers.take(2)) == [
        UpdateMetadataRequest,
        LeaderAndIsrRequest,
        LeaderAndIsrRequest,
        UpdateMetadataRequest,
    ]


async def test_an_unregistered_broker_gets_no_requests(world: World) -> None:
    world.brokers.down.add(2)
    await world.apply(image([1, 2], partition((1, 2), 1)))
    await world.apply(image([1], partition((1, 2), 1, 1, isr=(1,))))
    world.brokers.down.clear()
    await world.apply(world.image)
    assert world.brokers.take(2) == []


async def test_a_change_in_progress_at_the_end_of_the_term_is_not_sent(world: World) -> None:
    await world.apply(image([1, 2], partition((1, 2), 1)))
    assert len(world.brokers.take(2)) == 2
    await world.manager.close()
    await world.apply(image([1, 2], partition((1, 2), 2, 1)))
    assert world.brokers.take(2) == []


async def test_the_full_state_replaces_a_queue_that_is_too_long(world: World) -> None:
    world.brokers.down.add(2)
    await world.apply(image([1, 2], partition((1, 2), 1)))
    for epoch in range(1, 600):
        world.manager.apply(MetadataDelta.between(world.image, after := image([1, 2], partition((1, 2), 1, epoch))))
        world.image = after
    world.brokers.down.clear()
    for _ in range(3000):
        await asyncio.sleep(0)
    requests = world.brokers.take(2)
    assert len(requests) < 1000
    last = [each for each in requests if isinstance(each, LeaderAndIsrRequest)][-1]
    assert last.topic_states[0].partition_states[0].leader_epoch == 599


async def test_a_storage_error_reports_a_lost_replica(world: World) -> None:
    errors = [LeaderAndIsrResponse.LeaderAndIsrPartitionError("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)]
    world.brokers.response = LeaderAndIsrResponse(topics=[LeaderAndIsrResponse.LeaderAndIsrTopicError(T, errors)])
    with structlog.testing.capture_logs() as logged:
        await world.apply(image([1], partition((1,), 1)))
    assert [(each["log_level"], each["to"], each["errors"]) for each in logged] == [
        ("error", 1, {"KAFKA_STORAGE_ERROR": 1})
    ]
    assert world.handler.reported == [(1, 101, {(T, 0)}, set())]


async def test_a_repaired_disk_is_reported_once(world: World) -> None:
    lost = partition((1, 2), 2)._replace(directories=(LOST_DIRECTORY, UNASSIGNED_DIRECTORY))
    partition_errors = [LeaderAndIsrResponse.LeaderAndIsrPartitionError("t", 0, ErrorCode.KAFKA_STORAGE_ERROR)]
    world.brokers.response = LeaderAndIsrResponse(
        topics=[LeaderAndIsrResponse.LeaderAndIsrTopicError(T, partition_errors)]
    )
    await world.apply(image([1], lost))
    assert world.handler.reported == []
    partition_errors[0].error_code = ErrorCode.STALE_CONTROLLER_EPOCH
    world.manager.request_lost_replicas([1, 7])
    await world.apply(world.image)
    assert world.handler.reported == []
    partition_errors[0].error_code = ErrorCode.NONE
    world.manager.request_lost_replicas([1])
    await world.apply(world.image)
    assert world.handler.reported == [(1, 101, set(), {(T, 0)})]


async def test_after_a_disk_failure_the_broker_gets_a_request_for_its_replicas(world: World) -> None:
    await world.apply(image([1, 2], partition((1, 2), 1), partition((2,), 2)))
    world.brokers.requests.clear()
    world.manager.request_lost_replicas([1])
    lost = partition((1, 2), 2, 1, isr=(2,))._replace(directories=(LOST_DIRECTORY, UNASSIGNED_DIRECTORY))
    await world.apply(image([1, 2], lost, partition((2,), 2)))
    request, leader_and_isr, metadata = world.brokers.take(1)
    assert isinstance(request, LeaderAndIsrRequest)
    assert [each.partition_index for each in request.topic_states[0].partition_states] == [0]
    assert request.type == INCREMENTAL
    assert isinstance(leader_and_isr, LeaderAndIsrRequest)
    assert isinstance(metadata, UpdateMetadataRequest)
    assert metadata.topic_states[0].partition_states[0].offline_replicas == [1]
