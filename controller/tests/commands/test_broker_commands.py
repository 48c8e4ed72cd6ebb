"""Commands of brokers: registration, heartbeats, ISR changes, producer ids; and features."""

import pytest
from controller.tests.controller_kit import cluster, context, directory_of, image_of, registration, uuid_of

from odradek_controller.commands.alter_configs import alter_configs, incremental_alter_configs
from odradek_controller.commands.alter_partition import alter_partition
from odradek_controller.commands.brokers import (
    controlled_shutdown,
    fence_broker,
    register_broker,
    unfence_broker,
    unregister_broker,
)
from odradek_controller.commands.features import update_features
from odradek_controller.commands.forget_configs import forget_configs
from odradek_controller.commands.producer_ids import allocate_producer_ids
from odradek_controller.image import RECOVERING, ClusterImage, PartitionRegistration
from odradek_controller.levels import Emulation, served_features
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek_wire.messages.alter_configs import AlterConfigsRequest
from odradek_wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from odradek_wire.messages.config_record import ConfigRecord
from odradek_wire.messages.feature_level_record import FeatureLevelRecord
from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek_wire.messages.partition_record import PartitionRecord
from odradek_wire.messages.topic_record import TopicRecord
from odradek_wire.messages.unregister_broker import UnregisterBrokerRequest
from odradek_wire.messages.update_features import UpdateFeaturesRequest

T = uuid_of(500)


def with_partition(image: ClusterImage, replicas: list[int], isr: list[int]) -> ClusterImage:
    directories = [directory_of(broker) for broker in replicas]
    record = PartitionRecord(0, T, replicas, isr, [], [], isr[0], 0, 3, 5, directories)
    return image_of([TopicRecord("t", T), record], image)


THREE = with_partition(cluster({1: None, 2: None, 3: None}), [1, 2, 3], [1, 2, 3])


def partition(image: ClusterImage) -> PartitionRegistration:
    found = image.partition("t", 0)
    assert found is not None
    return found


# -- registration -----------------------------------------------------------------------------------------------------


def test_a_new_incarnation_is_fenced_and_loses_its_leaderships() -> None:
    records, response = register_broker(THREE, registration(1, 99), context(next_offset=70))
    image = image_of(records, THREE)
    assert (response.error_code, response.broker_epoch) == (ErrorCode.NONE, 70)
    broker = image.brokers[1]
    assert (broker.epoch, broker.incarnation_id, broker.fenced, broker.directories) == (
        70,
        uuid_of(99),
        True,
        (directory_of(1),),
    )
    assert (partition(image).leader, partition(image).isr, partition(image).leader_epoch) == (2, (2, 3), 4)


def test_the_same_incarnation_may_register_again() -> None:
    records, response = register_broker(THREE, registration(1, 1), context(next_offset=70))
    assert (len(records), response.broker_epoch) == (1, 70)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": [directory_of(1)] * 2}, ErrorCode.INVALID_REQUEST),
        ({"log_dirs": [directory_of(2)]}, ErrorCode.INVALID_REQUEST),
        ({"log_dirs": [uuid_of(0)]}, ErrorCode.INVALID_REQUEST),
        ({"features": []}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_registration_that_does_not_fit_the_cluster_is_refused(change: dict[str, object], error: ErrorCode) -> None:
    request = registration(1, 99)
    for name, value in change.items():
        setattr(request, name, value)
    records, response = register_broker(THREE, request, context(next_offset=70))
    assert (records, response.error_code) == ([], error)


def test_an_unfenced_broker_leads_leaderless_partitions() -> None:
    alone = with_partition(cluster({1: None}), [1], [1])
    fenced = image_of(fence_broker(alone, 1, context()), alone)
    assert (partition(fenced).leader, partition(fenced).eligible_leader_replicas) == (-1, (1,))
    back = image_of(unfence_broker(fenced, 1, context()), fenced)
    assert (partition(back).leader, partition(back).isr, partition(back).leader_epoch) == (1, (1,), 5)
    assert unfence_broker(back, 1, context()) == []


def without_two() -> ClusterImage:
    """Return an image in which broker 2 is fenced, and an eligible leader because of min.insync.replicas=3."""
    configured = image_of([ConfigRecord(2, "t", "min.insync.replicas", "3")], THREE)
    image = image_of(fence_broker(configured, 2, context()), configured)
    assert (partition(image).isr, partition(image).eligible_leader_replicas) == ((1, 3), (2,))
    return image


def test_a_broker_stays_an_eligible_leader_after_a_clean_shutdown() -> None:
    image = without_two()
    back = registration(2, 99)
    back.previous_broker_epoch = image.brokers[2].epoch
    records, _ = register_broker(image, back, context(next_offset=70))
    assert partition(image_of(records, image)).eligible_leader_replicas == (2,)


Override = tuple[int, str]
"""The type and the name of a resource."""
TOPIC_T, CLUSTER = (2, "t"), (4, "")


def with_min_isr(image: ClusterImage, resource: Override, value: str | None, *, replace: bool = False) -> ClusterImage:
    """Return the image after a request that sets `min.insync.replicas` of the resource, or deletes it."""
    if replace:
        old = [AlterConfigsRequest.AlterableConfig("min.insync.replicas", value)] if value is not None else []
        request = AlterConfigsRequest([AlterConfigsRequest.AlterConfigsResource(*resource, old)])
        records, response = alter_configs(image, request, context())
        assert response.responses[0].error_code == ErrorCode.NONE
        return image_of(records, image)
    config = IncrementalAlterConfigsRequest.AlterableConfig("min.insync.replicas", 1 if value is None else 0, value)
    wanted = IncrementalAlterConfigsRequest.AlterConfigsResource(*resource, [config])
    found, answer = incremental_alter_configs(image, IncrementalAlterConfigsRequest([wanted]), context())
    assert answer.responses[0].error_code == ErrorCode.NONE
    return image_of(found, image)


@pytest.mark.parametrize(
    ("before", "resource", "value", "replace"),
    [
        (TOPIC_T, TOPIC_T, "1", False),
        (TOPIC_T, TOPIC_T, None, False),
        (TOPIC_T, TOPIC_T, "1", True),
        (TOPIC_T, TOPIC_T, None, True),
        (CLUSTER, CLUSTER, "1", False),
        (CLUSTER, CLUSTER, "1", True),
        (CLUSTER, TOPIC_T, "1", False),
    ],
)
def test_a_replica_that_missed_committed_records_does_not_lead_after_min_isr_is_lowered(
    before: Override, resource: Override, value: str | None, replace: bool
) -> None:
    image = with_partition(cluster({1: None, 2: None}), [1, 2], [1, 2])
    image = image_of([ConfigRecord(*before, "min.insync.replicas", "2")], image)
    image = image_of(fence_broker(image, 2, context()), image)
    assert (partition(image).isr, partition(image).eligible_leader_replicas) == ((1,), (2,))
    image = with_min_isr(image, resource, value, replace=replace)
    assert partition(image).eligible_leader_replicas == ()
    # From now on broker 1 alone commits records with acks=all, and broker 2 comes back without them.
    image = image_of(unfence_broker(image, 2, context()), image)
    image = image_of(fence_broker(image, 1, context()), image)
    assert (partition(image).leader, partition(image).eligible_leader_replicas) == (-1, (1,))
    image = image_of(unfence_broker(image, 1, context()), image)
    assert (partition(image).leader, partition(image).isr) == (1, (1,))


def test_a_reset_of_the_cluster_wide_min_isr_clears_eligible_leaders() -> None:
    image = image_of([ConfigRecord(*CLUSTER, "min.insync.replicas", "3")], THREE)
    image = image_of(fence_broker(image, 2, context()), image)
    assert partition(image).eligible_leader_replicas == (2,)
    image = image_of(forget_configs(image, context()), image)
    assert partition(image).eligible_leader_replicas == ()


def test_eligible_leaders_stay_when_min_isr_does_not_change() -> None:
    image = without_two()
    assert partition(with_min_isr(image, TOPIC_T, "3")) == partition(image)
    other = IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", 0, "5")
    wanted = IncrementalAlterConfigsRequest.AlterConfigsResource(*TOPIC_T, [other])
    records, _ = incremental_alter_configs(image, IncrementalAlterConfigsRequest([wanted]), context())
    assert records == [ConfigRecord(2, "t", "retention.ms", "5")]


@pytest.mark.parametrize("previous_epoch", [-1, 11])
def test_an_unclean_shutdown_ends_the_eligibility_of_a_broker(previous_epoch: int) -> None:
    image = without_two()
    back = registration(2, 99)
    back.previous_broker_epoch = previous_epoch
    records, _ = register_broker(image, back, context(next_offset=70))
    after = partition(image_of(records, image))
    assert (after.isr, after.eligible_leader_replicas, after.leader) == ((1, 3), (), 1)


def test_the_last_known_leader_leads_when_no_replica_is_eligible() -> None:
    image = with_partition(cluster({1: None, 2: None, 3: None}), [1, 2, 3], [2, 1])
    for broker in (1, 2):
        image = image_of(fence_broker(image, broker, context()), image)
    for broker in (1, 2):
        records, _ = register_broker(image, registration(broker, 90 + broker), context(next_offset=70 + broker))
        image = image_of(records, image)
    assert (partition(image).isr, partition(image).eligible_leader_replicas) == ((), ())
    image = image_of(unfence_broker(image, 1, context()), image)
    assert partition(image).leader == -1
    image = image_of(unfence_broker(image, 2, context()), image)
    assert (partition(image).leader, partition(image).isr) == (2, (2,))
    assert partition(image).leader_recovery_state == RECOVERING


def test_an_out_of_sync_replica_leads_only_by_unclean_election() -> None:
    image = with_partition(cluster({1: None, 2: None, 3: None}), [1, 2], [1])
    for broker in (2, 1):
        image = image_of(fence_broker(image, broker, context()), image)
    refused = image_of(unfence_broker(image, 2, context()), image)
    assert partition(refused).leader == -1
    allowed = image_of([ConfigRecord(2, "t", "unclean.leader.election.enable", "true")], image)
    allowed = image_of(unfence_broker(allowed, 2, context()), allowed)
    assert (partition(allowed).leader, partition(allowed).isr) == (2, (2,))


def test_a_controlled_shutdown_moves_leaderships_to_other_brokers() -> None:
    image = image_of(controlled_shutdown(THREE, 1, context()), THREE)
    assert (partition(image).leader, partition(image).isr) == (2, (2, 3))
    assert (image.is_active(1), image.brokers[1].in_controlled_shutdown) == (False, True)
    assert controlled_shutdown(image, 1, context()) == []


def test_an_unregistered_broker_is_forgotten() -> None:
    records, response = unregister_broker(THREE, UnregisterBrokerRequest(3), context())
    image = image_of(records, THREE)
    assert (response.error_code, sorted(image.brokers), partition(image).isr) == (0, [1, 2], (1, 2))
    records, response = unregister_broker(THREE, UnregisterBrokerRequest(9), context())
    assert (records, response.error_code, response.error_message) == (
        [],
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "Broker ID 9 is not currently registered",
    )


# -- ISR --------------------------------------------------------------------------------------------------------------


def propose(image: ClusterImage, isr: list[int], **changes: int) -> tuple[ClusterImage, AlterPartitionResponse]:
    wanted = {"broker_id": 1, "broker_epoch": 11, "leader_epoch": 3, "partition_epoch": 5, "index": 0, **changes}
    states = [AlterPartitionRequest.BrokerState(broker, -1) for broker in isr]
    data = AlterPartitionRequest.PartitionData(
        wanted["index"], wanted["leader_epoch"], [], states, 0, wanted["partition_epoch"]
    )
    request = AlterPartitionRequest(
        wanted["broker_id"], wanted["broker_epoch"], [AlterPartitionRequest.TopicData(topic_id=T, partitions=[data])]
    )
    records, response = alter_partition(image, request, context())
    return image_of(records, image), response


def test_a_leader_shrinks_and_grows_the_isr_in_its_own_epoch() -> None:
    image, response = propose(THREE, [1, 2])
    assert response.topics[0].partitions == [AlterPartitionResponse.PartitionData(0, 0, 1, 3, [1, 2], 0, 6)]
    assert (partition(image).isr, partition(image).leader_epoch) == ((1, 2), 3)
    image, response = propose(image, [1, 2, 3], partition_epoch=6)
    assert (partition(image).isr, partition(image).partition_epoch) == ((1, 2, 3), 7)


@pytest.mark.parametrize(
    ("isr", "changes", "error"),
    [
        ([1, 2], {"leader_epoch": 2}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"leader_epoch": 4}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 4}, ErrorCode.INVALID_UPDATE_VERSION),
        ([1, 2], {"partition_epoch": 6}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"broker_id": 2, "broker_epoch": 12}, ErrorCode.INVALID_REQUEST),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),
        ([1, 9], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"index": 7}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_an_alter_partition_with_wrong_epochs_or_replicas_is_refused(
    isr: list[int], changes: dict[str, int], error: ErrorCode
) -> None:
    image, response = propose(THREE, isr, **changes)
    assert (image.topics, response.topics[0].partitions[0].error_code) == (THREE.topics, error)


def test_a_fenced_broker_cannot_join_an_isr() -> None:
    image = image_of(fence_broker(THREE, 3, context()), THREE)
    _, response = propose(image, [1, 2, 3], partition_epoch=6)
    assert response.topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA


def test_an_alter_partition_of_a_stale_broker_epoch_is_refused() -> None:
    image, response = propose(THREE, [1, 2], broker_epoch=10)
    assert (image.topics, response.error_code, response.topics) == (THREE.topics, ErrorCode.STALE_BROKER_EPOCH, [])


# -- producer ids and features ----------------------------------------------------------------------------------------


def test_producer_id_blocks_never_overlap() -> None:
    image, blocks = THREE, []
    for broker in (1, 2, 1):
        records, response = allocate_producer_ids(image, AllocateProducerIdsRequest(broker, 10 + broker), context())
        image = image_of(records, image)
        blocks.append((response.producer_id_start, response.producer_id_len))
    assert blocks == [(0, 1000), (1000, 1000), (2000, 1000)]
    assert (
        allocate_producer_ids(image, AllocateProducerIdsRequest(9, 1), context())[1].error_code
        == ErrorCode.BROKER_ID_NOT_REGISTERED
    )
    stale = allocate_producer_ids(image, AllocateProducerIdsRequest(1, 1), context())[1]
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH


DOWN = (
    "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade."
)


@pytest.mark.parametrize(
    ("feature", "level", "kind", "why"),
    [
        ("foo", 1, 1, "Local controller 1 does not support this feature."),
        ("metadata.version", 99, 1, "Local controller 1 only supports versions 7-30"),
        ("metadata.version", 0, 1, "Local controller 1 only supports versions 7-30"),
        ("share.version", 5, 1, "Local controller 1 only supports versions 0-1"),
        ("metadata.version", 29, 1, DOWN),
        ("group.version", 0, 1, DOWN),
        ("group.version", 1, 0, "The controller does not support the given upgrade type."),
        ("group.version", 0, 2, "The level of this feature is fixed by the release that the cluster emulates."),
        ("transaction.version", 1, 1, DOWN),
        ("transaction.version", 3, 1, "Local controller 1 only supports versions 0-2"),
    ],
)
def test_a_refused_level_is_not_changed_and_the_message_says_why(feature: str, level: int, kind: int, why: str) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature, level, False, kind)
    records, response = update_features(THREE, UpdateFeaturesRequest(feature_updates=[update]), context())
    assert (records, response.error_code, response.error_message) == (
        [],
        ErrorCode.INVALID_UPDATE_VERSION,
        "The update failed for all features since the following feature had an error: "
        f"Invalid update version {level} for feature {feature}. {why}",
    )


def test_an_update_to_the_current_level_changes_nothing() -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey("metadata.version", 30, False, 1)
    records, response = update_features(THREE, UpdateFeaturesRequest(feature_updates=[update]), context())
    assert (records, response.error_code, response.error_message) == ([], ErrorCode.NONE, None)


def test_transaction_version_can_be_lowered_and_raised() -> None:
    def after(image: ClusterImage, level: int, kind: int, *, validate_only: bool = False) -> ClusterImage:
        update = UpdateFeaturesRequest.FeatureUpdateKey("transaction.version", level, False, kind)
        request = UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only)
        records, response = update_features(image, request, context())
        assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
        return image_of(records, image)

    image = image_of([FeatureLevelRecord("transaction.version", 2)], THREE)
    assert image.levels.transaction_version == 2
    assert after(image, 1, 2, validate_only=True).levels.transaction_version == 2
    image = after(image, 1, 2)
    assert image.levels.transaction_version == 1
    image = after(image, 0, 3)
    assert (image.levels.transaction_version, "transaction.version" in image.levels.finalized) == (0, False)
    assert after(image, 2, 1).levels.transaction_version == 2
    update = UpdateFeaturesRequest.FeatureUpdateKey("transaction.version", 1, False, 2)
    _, response = update_features(image, UpdateFeaturesRequest(feature_updates=[update]), context())
    assert (response.error_message or "").endswith("Can't downgrade to a newer version.")


def test_a_feature_of_a_protocol_can_be_raised_where_it_is_supported() -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey("group.version", 1, False, 1)
    request = UpdateFeaturesRequest(feature_updates=[update])
    supported = Emulation.UNION.supported
    before = image_of([FeatureLevelRecord("group.version", 0)], THREE)
    records, response = update_features(before, request, context(features=supported))
    assert (records, response.error_code) == ([FeatureLevelRecord("group.version", 1)], ErrorCode.NONE)
    records, response = update_features(before, request, context(features=served_features(supported, ())))
    assert (records, response.error_code) == ([], ErrorCode.INVALID_UPDATE_VERSION)
    assert (response.error_message or "").endswith("Local controller 1 does not support this feature.")
