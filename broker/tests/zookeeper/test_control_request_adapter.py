"""Control requests become deltas: fencing, the metadata of clients, the replicas of this broker."""

from __future__ import annotations

from typing import Any

from odradek_broker.metadata.view import offline_replicas
from odradek_broker.zookeeper.control_request_adapter import (
    EPOCH_DURING_DELETE,
    FULL,
    LEADER_DURING_DELETE,
    ControlRequestAdapter,
)
from odradek_controller.configs.table import Resource
from odradek_controller.image import (
    BrokerRegistration,
    ClusterImage,
    ConfigResource,
    Endpoint,
    PartitionRegistration,
    ReplicaAction,
)
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.leader_and_isr import LeaderAndIsrRequest
from odradek_wire.messages.stop_replica import StopReplicaRequest
from odradek_wire.messages.update_metadata import UpdateMetadataRequest
from odradek_wire.uuid import ZERO_UUID, Uuid

T = Uuid(bytes(15) + b"t")
OTHER = Uuid(bytes(15) + b"u")
THIS_BROKER, CONTROLLER = 1, 7
OWN_EPOCH = 100


def adapter() -> ControlRequestAdapter:
    found = ControlRequestAdapter(ClusterImage(cluster_id="c"), THIS_BROKER)
    found.registered(
        BrokerRegistration(THIS_BROKER, OWN_EPOCH, ZERO_UUID, (Endpoint("PLAINTEXT", "me", 1),), (), None, False)
    )
    return found


def leader_and_isr_request(
    *states: LeaderAndIsrRequest.LeaderAndIsrPartitionState,
    topic_id: Uuid = T,
    controller_epoch: int = 1,
    broker_epoch: int = OWN_EPOCH,
    type: int = 0,
) -> LeaderAndIsrRequest:
    topics = [LeaderAndIsrRequest.LeaderAndIsrTopicState("t", topic_id, list(states))] if states else []
    return LeaderAndIsrRequest(
        controller_id=CONTROLLER,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        type=type,
        topic_states=topics,
    )


def leader_state(
    leader: int, index: int = 0, *, leader_epoch: int = 5, partition_epoch: int = 3, replicas: tuple[int, ...] = (1, 2)
) -> LeaderAndIsrRequest.LeaderAndIsrPartitionState:
    return LeaderAndIsrRequest.LeaderAndIsrPartitionState(
        "t", index, 1, leader, leader_epoch, list(replicas), partition_epoch, list(replicas)
    )


def update_metadata_request(
    *states: UpdateMetadataRequest.UpdateMetadataPartitionState,
    topic_id: Uuid = T,
    controller_epoch: int = 1,
    broker_epoch: int = OWN_EPOCH,
    brokers: tuple[int, ...] = (1, 2),
    type: int = 0,
) -> UpdateMetadataRequest:
    endpoints = [UpdateMetadataRequest.UpdateMetadataEndpoint(9092, "host", "PLAINTEXT", 0)]
    topics = [UpdateMetadataRequest.UpdateMetadataTopicState("t", topic_id, list(states))] if states else []
    return UpdateMetadataRequest(
        controller_id=CONTROLLER,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        type=type,
        topic_states=topics,
        live_brokers=[UpdateMetadataRequest.UpdateMetadataBroker(each, endpoints=endpoints) for each in brokers],
    )


def metadata_state(
    leader: int, index: int = 0, *, leader_epoch: int = 5, version: int = 3, isr: tuple[int, ...] = (1, 2), **rest: Any
) -> UpdateMetadataRequest.UpdateMetadataPartitionState:
    replicas = list(rest.get("replicas", (1, 2)))
    return UpdateMetadataRequest.UpdateMetadataPartitionState(
        "t", index, 1, leader, leader_epoch, list(isr), version, replicas
    )


def stop_replica_request(
    *, delete: bool, leader_epoch: int, index: int = 0, controller_epoch: int = 1, broker_epoch: int = OWN_EPOCH
) -> StopReplicaRequest:
    state = StopReplicaRequest.StopReplicaPartitionState(index, leader_epoch, delete)
    return StopReplicaRequest(
        controller_id=CONTROLLER,
        controller_epoch=controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[StopReplicaRequest.StopReplicaTopicState("t", [state])],
    )


def errors(response: Any) -> list[int]:
    assert response.error_code == 0
    return [each.error_code for each in response.partition_errors]


def test_an_assigned_partition_is_in_the_image_and_in_the_delta() -> None:
    delta, response = adapter().leader_and_isr(leader_and_isr_request(leader_state(1)))
    assert delta is not None
    assert delta.partitions == {T: (0,)}
    assert delta.image.partition("t", 0) == PartitionRegistration((1, 2), (1, 2), 1, 5, 3)
    assert (delta.image.controller_id, delta.image.epoch) == (CONTROLLER, 1)
    assert errors(response) == [0]
    assert [(each.topic_id, [e.error_code for e in each.partition_errors]) for each in response.topics] == [(T, [0])]


def test_a_request_of_a_deposed_controller_changes_nothing() -> None:
    found = adapter()
    found.leader_and_isr(leader_and_isr_request(leader_state(1), controller_epoch=4))
    before = found.image
    for delta, response in (
        found.leader_and_isr(leader_and_isr_request(leader_state(2, leader_epoch=9), controller_epoch=3)),
        found.update_metadata(update_metadata_request(metadata_state(2, leader_epoch=9), controller_epoch=3)),
        found.stop_replica(stop_replica_request(delete=True, leader_epoch=9, controller_epoch=3)),
    ):
        assert delta is None
        assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    assert found.image is before


def test_a_request_for_an_earlier_registration_changes_nothing() -> None:
    found = adapter()
    for delta, response in (
        found.leader_and_isr(leader_and_isr_request(leader_state(1), broker_epoch=OWN_EPOCH - 1)),
        found.update_metadata(update_metadata_request(metadata_state(1), broker_epoch=OWN_EPOCH - 1)),
        found.stop_replica(stop_replica_request(delete=True, leader_epoch=1, broker_epoch=OWN_EPOCH - 1)),
    ):
        assert delta is None
        assert response.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert found.image.topics == {}


def test_a_request_without_a_broker_epoch_is_accepted() -> None:
    delta, _ = adapter().leader_and_isr(leader_and_isr_request(leader_state(1), broker_epoch=-1))
    assert delta is not None


def test_an_outdated_leader_epoch_fails_only_its_partition() -> None:
    found = adapter()
    found.leader_and_isr(leader_and_isr_request(leader_state(1, leader_epoch=5)))
    delta, response = found.leader_and_isr(leader_and_isr_request(leader_state(2, leader_epoch=4), leader_state(2, 1)))
    assert errors(response) == [ErrorCode.STALE_CONTROLLER_EPOCH, 0]
    assert delta is not None
    assert delta.partitions == {T: (1,)}


def test_a_second_topic_id_for_an_assigned_name_is_refused() -> None:
    found = adapter()
    found.leader_and_isr(leader_and_isr_request(leader_state(1)))
    _, response = found.leader_and_isr(leader_and_isr_request(leader_state(1, leader_epoch=9), topic_id=OTHER))
    assert errors(response) == [ErrorCode.INCONSISTENT_TOPIC_ID]


def test_a_partition_without_a_replica_here_is_refused() -> None:
    _, response = adapter().leader_and_isr(leader_and_isr_request(leader_state(2, replicas=(2, 3))))
    assert errors(response) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_update_metadata_assigns_no_replica() -> None:
    delta, _ = adapter().update_metadata(update_metadata_request(metadata_state(2, 1)))
    assert delta is not None
    assert delta.partitions == {}
    assert [each.leader for each in delta.image.topics["t"].partitions] == [-1, 2]
    assert sorted(delta.image.brokers) == [1, 2]
    assert delta.image.brokers[THIS_BROKER].epoch == OWN_EPOCH


def test_a_broker_missing_in_update_metadata_is_fenced() -> None:
    found = adapter()
    assert found.image.brokers[THIS_BROKER].fenced
    found.update_metadata(update_metadata_request())
    assert not found.image.brokers[THIS_BROKER].fenced
    delta, _ = found.update_metadata(update_metadata_request(brokers=(2,)))
    assert delta is not None
    assert delta.brokers == {THIS_BROKER}
    assert delta.image.brokers[THIS_BROKER].fenced
    assert found.broker_epoch == OWN_EPOCH


def test_a_changed_isr_reaches_the_replicas_by_update_metadata() -> None:
    found = adapter()
    found.leader_and_isr(leader_and_isr_request(leader_state(1)))
    delta, _ = found.update_metadata(update_metadata_request(metadata_state(1, version=4, isr=(1,))))
    assert delta is not None
    assert delta.partitions == {T: (0,)}
    assert delta.image.partition("t", 0) == PartitionRegistration((1, 2), (1,), 1, 5, 4)


def test_a_new_leader_epoch_waits_for_leader_and_isr() -> None:
    found = adapter()
    found.leader_and_isr(leader_and_isr_request(leader_state(1)))
    delta, _ = found.update_metadata(update_metadata_request(metadata_state(2, leader_epoch=6, version=4)))
    assert delta is not None
    assert delta.partitions == {}
    assert delta.image.topics["t"].partitions[0].leader == 2
    delta, response = found.leader_and_isr(leader_and_isr_request(leader_state(2, leader_epoch=6, partition_epoch=4)))
    assert errors(response) == [0]
    assert delta is not None
    assert delta.partitions == {T: (0,)}


def test_older_metadata_does_not_replace_newer() -> None:
    found = adapter()
    found.leader_and_isr(leader_and_isr_request(leader_state(1, leader_epoch=6, partition_epoch=9)))
    delta, _ = found.update_metadata(update_metadata_request(metadata_state(2, leader_epoch=5, version=8)))
    assert delta is not None
    assert delta.image.topics["t"].partitions[0].leader == 1


def test_a_topic_in_deletion_leaves_the_image_with_its_configuration() -> None:
    found = adapter()
    resource = ConfigResource(Resource.TOPIC, "t")
    found.configs_changed({resource: {"cleanup.policy": "compact"}})
    found.leader_and_isr(leader_and_isr_request(leader_state(1)))
    delta, _ = found.update_metadata(
        update_metadata_request(metadata_state(LEADER_DURING_DELETE, leader_epoch=EPOCH_DURING_DELETE))
    )
    assert delta is not None
    assert list(delta.deleted_topics) == [T]
    assert delta.image.topics == delta.image.topics_by_id == delta.image.configs == {}
    _, response = found.stop_replica(stop_replica_request(delete=True, leader_epoch=EPOCH_DURING_DELETE))
    assert errors(response) == [0]
    _, response = found.leader_and_isr(leader_and_isr_request(leader_state(1, leader_epoch=0), topic_id=OTHER))
    assert errors(response) == [0]


def test_update_metadata_does_not_restart_a_stopped_replica() -> None:
    found = adapter()
    found.leader_and_isr(leader_and_isr_request(leader_state(2)))
    delta, response = found.stop_replica(stop_replica_request(delete=False, leader_epoch=5))
    assert delta is not None
    assert delta.replica_actions == {("t", 0): ReplicaAction.STOP}
    assert errors(response) == [0]
    delta, _ = found.update_metadata(update_metadata_request(metadata_state(2, version=4, isr=(2,))))
    assert delta is not None
    assert delta.partitions == {}
    delta, _ = found.leader_and_isr(leader_and_isr_request(leader_state(2, leader_epoch=5)))
    assert delta is not None
    assert delta.partitions == {T: (0,)}


def test_a_replica_is_deleted_unless_its_leader_epoch_is_newer() -> None:
    found = adapter()
    found.leader_and_isr(leader_and_isr_request(leader_state(1)))
    delta, response = found.stop_replica(stop_replica_request(delete=True, leader_epoch=4))
    assert delta is not None
    assert delta.replica_actions == {}
    assert errors(response) == [ErrorCode.FENCED_LEADER_EPOCH]
    delta, response = found.stop_replica(stop_replica_request(delete=True, leader_epoch=5))
    assert delta is not None
    assert delta.replica_actions == {("t", 0): ReplicaAction.DELETE}
    assert errors(response) == [0]


def test_an_unassigned_replica_is_deleted_too() -> None:
    delta, response = adapter().stop_replica(stop_replica_request(delete=True, leader_epoch=-1, index=4))
    assert delta is not None
    assert delta.replica_actions == {("t", 4): ReplicaAction.DELETE}
    assert errors(response) == [0]


def test_a_full_request_marks_other_replicas_as_strays() -> None:
    found = adapter()
    delta, _ = found.leader_and_isr(leader_and_isr_request(leader_state(1, 0), leader_state(1, 1)))
    assert delta is not None
    assert not delta.complete
    delta, _ = found.leader_and_isr(leader_and_isr_request(leader_state(1, 1), type=FULL))
    assert delta is not None
    assert delta.complete
    assert delta.replica_actions == {("t", 0): ReplicaAction.MARK_STRAY}


def test_a_topic_missing_in_full_metadata_becomes_a_stray() -> None:
    found = adapter()
    found.leader_and_isr(leader_and_isr_request(leader_state(1)))
    delta, _ = found.update_metadata(update_metadata_request(type=FULL))
    assert delta is not None
    assert list(delta.deleted_topics) == [T]
    assert delta.replica_actions == {("t", 0): ReplicaAction.MARK_STRAY}
    assert delta.image.topics == {}


def test_the_configuration_of_a_topic_is_needed_when_first_named() -> None:
    found = adapter()
    assert found.unknown_topics(leader_and_isr_request(leader_state(1))) == ["t"]
    found.leader_and_isr(leader_and_isr_request(leader_state(1)))
    assert found.unknown_topics(update_metadata_request(metadata_state(1))) == []
    assert found.unknown_topics(update_metadata_request(metadata_state(1), topic_id=OTHER)) == ["t"]


def test_an_empty_configuration_is_removed() -> None:
    found = adapter()
    resource = ConfigResource(Resource.TOPIC, "t")
    assert found.configs_changed({resource: {"a": "b"}}).image.configs == {resource: {"a": "b"}}
    delta = found.configs_changed({resource: {}})
    assert (delta.configs, delta.image.configs) == ({resource}, {})


def test_a_second_registration_has_a_new_epoch() -> None:
    found = adapter()
    found.update_metadata(update_metadata_request())
    registration = replace_epoch(found.image.brokers[THIS_BROKER], 200)
    assert found.registered(registration).image.brokers[THIS_BROKER].epoch == 200
    assert not found.image.brokers[THIS_BROKER].fenced


def replace_epoch(registration: BrokerRegistration, epoch: int) -> BrokerRegistration:
    return registration._replace(epoch=epoch, fenced=True)


def test_requests_without_topic_ids_mean_the_topic_of_that_name() -> None:
    found = adapter()
    state = leader_state(1)
    old = LeaderAndIsrRequest(CONTROLLER, controller_epoch=1, ungrouped_partition_states=[state])
    delta, response = found.leader_and_isr(old)
    assert delta is not None
    assert (delta.partitions, errors(response)) == ({}, [ErrorCode.UNKNOWN_TOPIC_ID])
    found.update_metadata(update_metadata_request(metadata_state(1)))
    delta, response = found.leader_and_isr(old)
    assert delta is not None
    assert (delta.partitions, errors(response)) == ({T: (0,)}, [0])
    newer = UpdateMetadataRequest(
        CONTROLLER, controller_epoch=1, ungrouped_partition_states=[metadata_state(1, version=9)]
    )
    delta, _ = found.update_metadata(newer)
    assert delta is not None
    assert delta.image.topics["t"].partitions[0].partition_epoch == 9
    assert delta.image.brokers[THIS_BROKER].fenced


def test_stop_replica_without_leader_epochs_is_accepted() -> None:
    for form in (
        {"ungrouped_partitions": [StopReplicaRequest.StopReplicaPartitionV0("t", 0)]},
        {"topics": [StopReplicaRequest.StopReplicaTopicV1("t", [0])]},
    ):
        for delete, action in ((True, ReplicaAction.DELETE), (False, ReplicaAction.STOP)):
            found = adapter()
            found.leader_and_isr(leader_and_isr_request(leader_state(1)))
            request = StopReplicaRequest(CONTROLLER, controller_epoch=1, delete_partitions=delete, **form)
            delta, response = found.stop_replica(request)
            assert delta is not None
            assert delta.replica_actions == {("t", 0): action}
            assert errors(response) == [0]


def test_an_offline_replica_of_a_live_broker_is_in_a_failed_directory() -> None:
    found = adapter()
    found.leader_and_isr(leader_and_isr_request(leader_state(1)))
    state = metadata_state(1, isr=(1,), version=4)
    state.offline_replicas = [2, 7]
    found.update_metadata(update_metadata_request(state))
    partition = found.image.partition("t", 0)
    assert partition is not None
    assert offline_replicas(found.image, partition, "PLAINTEXT") == [2]
    # The same assignment again says nothing of other replicas.
    found.leader_and_isr(leader_and_isr_request(leader_state(1, partition_epoch=4)))
    partition = found.image.partition("t", 0)
    assert partition is not None
    assert offline_replicas(found.image, partition, "PLAINTEXT") == [2]
    found.update_metadata(update_metadata_request(metadata_state(1, version=5)))
    partition = found.image.partition("t", 0)
    assert partition is not None
    assert offline_replicas(found.image, partition, "PLAINTEXT") == []


def test_quotas_and_credentials_of_many_entities_are_one_delta() -> None:
    found = adapter()
    scram = "salt=czE=,stored_key=c3Q=,server_key=c2U=,iterations=4096"
    users = {f"users/u{number}": {"producer_byte_rate": "7", "SCRAM-SHA-256": scram} for number in range(3)}
    delta, damaged = found.entities_changed(users)
    assert delta is not None
    assert delta.image.security.scram_credentials.keys() == {(f"u{number}", 1) for number in range(3)}
    assert found.entities_changed(users) == (None, [])
    delta, damaged = found.entities_changed({"users/u0": {}, "users/u1": {"producer_byte_rate": "many"}})
    assert delta is not None
    assert [error.path for error in damaged] == ["/config/users/u1"]
    assert found.image.security.scram_credentials.keys() == {("u1", 1), ("u2", 1)}
    assert sorted(entity.parts[0][1] or "" for entity in found.image.security.client_quotas) == ["u1", "u2"]
