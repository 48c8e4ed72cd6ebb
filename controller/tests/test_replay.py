"""Replay: records make an image, the image's records rebuild it, and a delta names all changes."""

import random
from typing import Any

import pytest
from controller.tests.controller_kit import CLUSTER_ID, cluster, context, directory_of, image_of, topics, uuid_of
from hypothesis import example, given
from hypothesis import strategies as st

from odradek_controller.commands.alter_configs import incremental_alter_configs
from odradek_controller.commands.brokers import controlled_shutdown, fence_broker, unfence_broker
from odradek_controller.commands.create_partitions import create_partitions
from odradek_controller.commands.create_topics import create_topics
from odradek_controller.commands.delete_topics import delete_topics
from odradek_controller.framing import frame, unframe
from odradek_controller.image import ClusterImage, ConfigResource, MetadataDelta, PartitionRegistration, TopicImage
from odradek_controller.image_records import image_records
from odradek_controller.levels import Emulation
from odradek_controller.replay import RECORD_TYPES, InvalidMetadataError, replay
from odradek_wire.message import Message
from odradek_wire.messages.access_control_entry_record import AccessControlEntryRecord
from odradek_wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek_wire.messages.clear_elr_record import ClearElrRecord
from odradek_wire.messages.client_quota_record import ClientQuotaRecord
from odradek_wire.messages.config_record import ConfigRecord
from odradek_wire.messages.create_partitions import CreatePartitionsRequest
from odradek_wire.messages.delegation_token_record import DelegationTokenRecord
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.fence_broker_record import FenceBrokerRecord
from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek_wire.messages.no_op_record import NoOpRecord
from odradek_wire.messages.partition_change_record import PartitionChangeRecord
from odradek_wire.messages.partition_record import PartitionRecord
from odradek_wire.messages.producer_ids_record import ProducerIdsRecord
from odradek_wire.messages.register_controller_record import RegisterControllerRecord
from odradek_wire.messages.remove_topic_record import RemoveTopicRecord
from odradek_wire.messages.snapshot_header_record import SnapshotHeaderRecord
from odradek_wire.messages.topic_record import TopicRecord
from odradek_wire.messages.unregister_broker_record import UnregisterBrokerRecord
from odradek_wire.messages.user_scram_credential_record import UserScramCredentialRecord
from odradek_wire.messages.zk_migration_state_record import ZkMigrationStateRecord

THREE = cluster({1: "a", 2: "b", 3: "a"})


def without_position(image: ClusterImage) -> Any:
    """Return the image without its offset and epoch."""
    return {name: getattr(image, name) for name in image.__slots__ if name not in ("offset", "epoch")}


def rebuilt(image: ClusterImage) -> ClusterImage:
    """Return the image made from its own records, each encoded and decoded."""
    records = [unframe(frame(record, image.levels)) for record in image_records(image)]
    return image_of(records, ClusterImage(cluster_id=image.cluster_id))


operations = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from("stuvw"), st.integers(1, 4), st.integers(1, 3)),
        st.tuples(st.just("grow"), st.sampled_from("stuvw"), st.integers(1, 6), st.just(0)),
        st.tuples(st.just("delete"), st.sampled_from("stuvw"), st.just(0), st.just(0)),
        st.tuples(st.just("configure"), st.sampled_from("stuvw"), st.integers(1, 3), st.integers(0, 1)),
        st.tuples(st.just("fence"), st.just(""), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("unfence"), st.just(""), st.integers(1, 3), st.just(0)),
        st.tuples(st.just("leave"), st.just(""), st.integers(1, 3), st.just(0)),
    ),
    max_size=25,
)


def decide(image: ClusterImage, operation: tuple[str, str, int, int], seed: int) -> list[Message]:
    what, name, first, second = operation
    chance = context(seed=seed)
    match what:
        case "create":
            return create_topics(image, topics(name, partitions=first, factor=second), chance)[0]
        case "grow":
            wanted = CreatePartitionsRequest.CreatePartitionsTopic(name, first, None)
            return create_partitions(image, CreatePartitionsRequest([wanted]), chance)[0]
        case "delete":
            return delete_topics(image, DeleteTopicsRequest(topic_names=[name]), chance)[0]
        case "configure":
            config = IncrementalAlterConfigsRequest.AlterableConfig("min.insync.replicas", second, str(first))
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(2, name, [config])
            return incremental_alter_configs(image, IncrementalAlterConfigsRequest([resource]), chance)[0]
        case "fence":
            return fence_broker(image, first, chance)
        case "unfence":
            return unfence_broker(image, first, context())
        case _:
            return controlled_shutdown(image, first, chance)


@given(operations, st.integers(0, 100))
@example([("create", "s", 1, 1), *(("fence", "", broker, 0) for broker in (1, 2, 3)), ("configure", "s", 2, 0)], 0)
def test_records_of_an_image_rebuild_it_and_deltas_name_each_change(
    steps: list[tuple[str, str, int, int]], seed: int
) -> None:
    image = THREE
    rng = random.Random(seed)
    all_records: list[Message] = []
    cleared: set[str] = set()
    for step in steps:
        records = decide(image, step, rng.randrange(1 << 30))
        all_records += records
        delta = replay(image, records, offset=image.offset + len(records))
        compared = MetadataDelta.between(image, delta.image)
        assert set(delta.partitions) == set(compared.partitions)
        assert delta.deleted_topics == compared.deleted_topics
        assert delta.brokers == compared.brokers
        assert delta.configs >= compared.configs
        for topic_id, changed in compared.partitions.items():
            assert set(changed) <= set(delta.partitions[topic_id])
        image = delta.image
        cleared |= {record.topic_name for record in records if isinstance(record, ClearElrRecord)}
        check_invariants(image, cleared)
    assert without_position(rebuilt(image)) == without_position(image)
    assert without_position(image_of(all_records, THREE)) == without_position(image)


def check_invariants(image: ClusterImage, cleared: set[str]) -> None:
    """`cleared` are the topics whose eligible leaders a change of `min.insync.replicas` cleared, even the last one."""
    for topic in image.topics.values():
        assert image.topics_by_id[topic.id] is topic
        for partition in topic.partitions:
            assert set(partition.isr) <= set(partition.replicas)
            assert not set(partition.isr) & set(partition.eligible_leader_replicas)
            # A replica with all committed records is known.
            assert partition.isr or partition.eligible_leader_replicas or topic.name in cleared
            assert len(partition.directories) == len(partition.replicas)
            if partition.leader == -1:
                candidates = {*partition.isr, *partition.eligible_leader_replicas}
                assert not any(image.is_active(broker) for broker in candidates)
            else:
                assert partition.leader in partition.isr
                assert not image.brokers[partition.leader].fenced
    assert len(image.topics) == len(image.topics_by_id)


def test_an_older_image_does_not_change_when_records_are_replayed_on_it() -> None:
    before = image_of(create_topics(THREE, topics("t", partitions=2), context())[0], THREE)
    same = without_position(before)
    copy = {name: (dict(value) if isinstance(value, dict) else value) for name, value in same.items()}
    replay(
        before, [RemoveTopicRecord(before.topics["t"].id), ConfigRecord(4, "", "a", "b"), ProducerIdsRecord(1, 2, 5)]
    )
    assert without_position(before) == copy


def test_security_records_are_stored_and_written_again() -> None:
    user = ClientQuotaRecord.EntityData
    records: list[Message] = [
        RegisterControllerRecord(
            1, uuid_of(5), False, [RegisterControllerRecord.ControllerEndpoint("CONTROLLER", "h", 1, 0)]
        ),
        AccessControlEntryRecord(uuid_of(1), 2, "t", 3, "User:a", "*", 3, 3),
        UserScramCredentialRecord("u", 1, b"salt", b"stored", b"server", 4096),
        DelegationTokenRecord(owner="User:a", requester="User:a", token_id="t", renewers=["User:b"]),
        ClientQuotaRecord([user("user", "u"), user("client-id", None)], "producer_byte_rate", 5.0, False),
        ClientQuotaRecord([user("user", "u"), user("client-id", None)], "consumer_byte_rate", 6.0, False),
        ZkMigrationStateRecord(1),
        ProducerIdsRecord(1, 11, 3000),
        NoOpRecord(),
    ]
    image = image_of(records, THREE)
    assert image.next_producer_id == 3000
    assert image.security.acls == {uuid_of(1): records[1]}
    assert [dict(limits) for limits in image.security.client_quotas.values()] == [
        {"producer_byte_rate": 5.0, "consumer_byte_rate": 6.0}
    ]
    assert without_position(rebuilt(image)) == without_position(image)
    gone = ClientQuotaRecord([user("client-id", None), user("user", "u")], "producer_byte_rate", 0.0, True)
    assert [dict(limits) for limits in image_of([gone], image).security.client_quotas.values()] == [
        {"consumer_byte_rate": 6.0}
    ]


def test_every_record_type_of_kafka_is_known() -> None:
    assert sorted(RECORD_TYPES) == [
        *(0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12),
        *(14, 15, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28),
    ]


@pytest.mark.parametrize("emulation", [Emulation.KAFKA_3_9, Emulation.KAFKA_4_0, Emulation.KAFKA_4_3])
def test_records_are_framed_in_the_versions_of_the_levels(emulation: Emulation) -> None:
    levels = emulation.initial
    versions = [
        frame(record, levels)[:3]
        for record in (
            PartitionRecord(0, uuid_of(1)),
            PartitionChangeRecord(0, uuid_of(1), leader=1),
            BrokerRegistrationChangeRecord(1, 2, -1),
            TopicRecord("t", uuid_of(1)),
        )
    ]
    partition = 1 if emulation is Emulation.KAFKA_3_9 else 2
    assert versions == [bytes((1, 3, partition)), bytes((1, 5, 0)), bytes((1, 17, 0)), bytes((1, 2, 0))]


def test_a_partition_change_increments_its_epochs() -> None:
    image = image_of([TopicRecord("t", uuid_of(1)), PartitionRecord(0, uuid_of(1), [1, 2], [1, 2], [], [], 1, 0, 4, 7)])
    change = PartitionChangeRecord(0, uuid_of(1), isr=[2], leader=2)
    delta = replay(image, [change], offset=9, epoch=3)
    partition = PartitionRegistration((1, 2), (2,), 2, 5, 8)
    assert delta.image == ClusterImage(
        cluster_id=CLUSTER_ID,
        offset=9,
        epoch=3,
        topics={"t": TopicImage(uuid_of(1), "t", (partition,))},
        topics_by_id={uuid_of(1): TopicImage(uuid_of(1), "t", (partition,))},
    )
    assert delta.partitions == {uuid_of(1): (0,)}


def with_eligible_leader(topic: str, topic_id: int) -> list[Message]:
    partition = PartitionRecord(0, uuid_of(topic_id), [1, 2], [1], leader=1, eligible_leader_replicas=[2])
    return [TopicRecord(topic, uuid_of(topic_id)), partition]


@pytest.mark.parametrize("cleared", ["", "t", "unknown"])
@pytest.mark.parametrize(
    ("existing", "records"),
    [
        ("t", []),
        ("u", with_eligible_leader("t", 2)),
        ("t", [RemoveTopicRecord(uuid_of(1))]),
        ("t", [RemoveTopicRecord(uuid_of(1)), *with_eligible_leader("t", 2)]),
        ("t", [PartitionChangeRecord(0, uuid_of(1), last_known_elr=[1])]),
    ],
)
def test_eligible_leaders_are_cleared_also_when_earlier_records_are_replayed_together(
    existing: str, records: list[Message], cleared: str
) -> None:
    before = image_of(with_eligible_leader(existing, 1))
    records = [*records, ClearElrRecord(cleared)]
    one_by_one = before
    for record in records:
        one_by_one = image_of([record], one_by_one)
    together = image_of(records, before)
    assert without_position(together) == without_position(one_by_one)
    for topic in together.topics.values():
        partition = topic.partitions[0]
        assert (partition.eligible_leader_replicas == ()) == (cleared in ("", topic.name))


def test_a_cleared_partition_gets_a_new_partition_epoch() -> None:
    before = image_of([*with_eligible_leader("t", 1), *with_eligible_leader("u", 2)])
    delta = replay(before, [ClearElrRecord("t")])
    partition = before.topics["t"].partitions[0]
    cleared = partition._replace(eligible_leader_replicas=(), partition_epoch=partition.partition_epoch + 1)
    assert delta.image.topics["t"].partitions == (cleared,)
    assert delta.image.topics["u"] == before.topics["u"]
    assert delta.partitions == {uuid_of(1): (0,)}
    assert replay(delta.image, [ClearElrRecord("t")]).partitions == {}


def test_brokers_are_registered_fenced_and_unregistered() -> None:
    image = image_of([FenceBrokerRecord(1, 11)], THREE)
    assert [broker.id for broker in image.live_brokers()] == [2, 3]
    image = image_of([BrokerRegistrationChangeRecord(2, 12, 0, 1, [uuid_of(9)], [uuid_of(9)])], image)
    assert (image.is_active(1), image.is_active(2), image.is_active(3), image.is_active(4)) == (
        False,
        False,
        True,
        False,
    )
    assert (image.brokers[2].directories, image.brokers[2].cordoned_log_dirs) == ((uuid_of(9),), (uuid_of(9),))
    delta = replay(image, [UnregisterBrokerRecord(3, 13)])
    assert (sorted(delta.image.brokers), delta.brokers) == ([1, 2], frozenset({3}))
    assert directory_of(1) in image.brokers[1].directories


def test_a_configuration_that_was_deleted_leaves_nothing_behind() -> None:
    image = image_of([ConfigRecord(2, "t", "a", "1"), ConfigRecord(2, "t", "b", "2")])
    image = image_of([ConfigRecord(2, "t", "a", None)], image)
    assert image.configs == {ConfigResource(2, "t"): {"b": "2"}}
    assert image_of([ConfigRecord(2, "t", "b", None)], image).configs == {}


@pytest.mark.parametrize(
    "record",
    [
        PartitionRecord(0, uuid_of(9)),
        PartitionChangeRecord(0, uuid_of(9)),
        RemoveTopicRecord(uuid_of(9)),
        BrokerRegistrationChangeRecord(1, 99, -1),
        UnregisterBrokerRecord(9, 1),
        SnapshotHeaderRecord(),
    ],
)
def test_a_record_of_an_unknown_topic_or_broker_is_refused(record: Message) -> None:
    with pytest.raises(InvalidMetadataError):
        replay(THREE, [record])


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (TopicRecord("t", uuid_of(2)), "creates topic 't', which exists"),
        (PartitionRecord(2, uuid_of(1)), "creates t-2, expected t-1"),
        (PartitionChangeRecord(3, uuid_of(1)), r"changes t-3, but the topic has 1 partition\(s\)"),
        (UnregisterBrokerRecord(1, 99), "broker 1 epoch 99: the broker is registered with epoch 11"),
        (UnregisterBrokerRecord(9, 1), "broker 9 epoch 1: the broker is not registered"),
    ],
)
def test_the_error_names_what_the_record_has_and_what_was_expected(record: Message, message: str) -> None:
    before = image_of([TopicRecord("t", uuid_of(1)), PartitionRecord(0, uuid_of(1))], THREE)
    with pytest.raises(InvalidMetadataError, match=message):
        replay(before, [record])


def test_a_record_of_a_later_kafka_is_refused() -> None:
    with pytest.raises(InvalidMetadataError, match="type 99 version 0 is from a later Kafka"):
        unframe(bytes((1, 99, 0)))
    with pytest.raises(InvalidMetadataError, match="type 3 version 9 is from a later Kafka"):
        unframe(bytes((1, 3, 9)))
    with pytest.raises(InvalidMetadataError, match="frame version 2, expected 1"):
        unframe(bytes((2, 3, 0)))
    with pytest.raises(InvalidMetadataError, match="2 bytes, expected at least 3"):
        unframe(bytes((1, 3)))
