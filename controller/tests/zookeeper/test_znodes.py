"""The data of znodes: those of a real Kafka 3.9.1 byte for byte, older versions, and damaged ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from controller.tests.zookeeper.facts import kafka_trees

from odradek_controller.image import RECOVERING, Endpoint, FeatureRange
from odradek_controller.zookeeper import paths, znodes
from odradek_controller.zookeeper.acl_znodes import (
    LITERAL,
    PREFIXED,
    RESOURCE_TYPES,
    ROOTS,
    Pattern,
    decode_acls,
    encode_acls,
)
from odradek_controller.zookeeper.json_text import InvalidZnodeError, in_hash_order
from odradek_controller.zookeeper.znodes import (
    Assignment,
    BrokerZnode,
    ControllerZnode,
    PartitionState,
    ProducerIdBlock,
    TopicZnode,
)
from odradek_wire.uuid import uuid_from_text


def _both_ways(form: type[Any]) -> Callable[[str, bytes], bytes]:
    def round_trip(path: str, data: bytes) -> bytes:
        encoded = form.decode(path, data).encode()
        assert isinstance(encoded, bytes)
        return encoded

    return round_trip


_FORMS: list[tuple[str, Callable[[str, bytes], bytes]]] = [
    (r"/brokers/ids/\d+", _both_ways(BrokerZnode)),
    (r"/brokers/topics/[^/]+", _both_ways(TopicZnode)),
    (r"/brokers/topics/[^/]+/partitions/\d+/state", _both_ways(PartitionState)),
    (r"/controller", _both_ways(ControllerZnode)),
    (r"/controller_epoch", lambda path, data: znodes.encode_number(znodes.decode_number(path, data))),
    (
        r"/config/(topics|brokers|clients|users|ips)/.*(?<!/clients)",
        lambda path, data: znodes.encode_config(znodes.decode_config(path, data)),
    ),
    (r"/config/changes/.+", lambda path, data: znodes.encode_config_change(znodes.decode_config_change(path, data))),
    (r"/latest_producer_id_block", _both_ways(ProducerIdBlock)),
    (r"/feature", lambda path, data: znodes.encode_features(znodes.decode_features(path, data) or {})),
    (r"/cluster/id", lambda path, data: znodes.encode_cluster_id(znodes.decode_cluster_id(path, data))),
]


def _acls(path: str, data: bytes) -> bytes:
    pattern_type = PREFIXED if path.startswith(ROOTS[PREFIXED]) else LITERAL
    kind, name = path.split("/")[-2:]
    pattern = Pattern(next(number for number, known in RESOURCE_TYPES.items() if known == kind), name, pattern_type)
    assert pattern.path == path
    return encode_acls(decode_acls(pattern, data))


_FORMS += [
    (r"/kafka-acl/.+|/kafka-acl-extended/prefixed/.+", _acls),
    (r"/kafka-acl(-extended)?-changes/.+", lambda path, data: Pattern.decode_change(path, data).encode_change()),
]


def test_every_znode_of_a_real_kafka_is_read_and_written_byte_for_byte() -> None:
    seen: set[str] = set()
    for tree in kafka_trees():
        for path, data in tree.items():
            for pattern, round_trip in _FORMS:
                if data and re.fullmatch(pattern, path):
                    assert round_trip(path, data) == data
                    seen.add(pattern)
    assert seen == {pattern for pattern, _ in _FORMS}


def test_a_fresh_broker_of_kafka_creates_the_persistent_paths() -> None:
    fresh = kafka_trees()[0]
    assert set(paths.PERSISTENT) <= {path for path, data in fresh.items() if not data}


def test_the_znodes_of_the_dump_are_read() -> None:
    tree = kafka_trees()[3]
    topic = TopicZnode.decode("", tree["/brokers/topics/t3"])
    assert topic.topic_id == uuid_from_text("HjA3tzBNRyWt-yGYlpXEzA")
    assert topic.partitions == dict.fromkeys(range(4), Assignment((1,)))
    assert list(TopicZnode.decode("", tree["/brokers/topics/__consumer_offsets"]).partitions) == list(range(50))
    assert PartitionState.decode("", tree["/brokers/topics/t3/partitions/0/state"]) == PartitionState(1, 0, (1,), 1)
    assert BrokerZnode.decode("", tree["/brokers/ids/1"]).endpoints == (Endpoint("PLAINTEXT", "127.0.0.1", 22092),)
    assert ProducerIdBlock.decode("", tree["/latest_producer_id_block"]) == ProducerIdBlock(1, 0, 999)
    assert znodes.decode_config("", tree["/config/users/u1/clients/c1"]) == {"consumer_byte_rate": "2048"}


def test_the_state_after_an_unclean_election_is_recovering() -> None:
    state = PartitionState(2, 5, (2,), 7, RECOVERING)
    text = b'{"controller_epoch":7,"leader":2,"version":1,"leader_recovery_state":1,"leader_epoch":5,"isr":[2]}'
    assert state.encode() == text
    assert PartitionState.decode("", text) == state


def test_the_topic_znode_has_the_reassignments() -> None:
    topic = TopicZnode(None, {0: Assignment((1, 2, 3), (3,), (2,)), 1: Assignment((1,))})
    assert topic.encode() == (
        b'{"partitions":{"0":[1,2,3],"1":[1]},"adding_replicas":{"0":[3]},"removing_replicas":{"0":[2]},"version":3}'
    )
    assert TopicZnode.decode("", topic.encode()) == topic


def test_a_broker_without_a_plaintext_listener_has_no_host_and_port() -> None:
    broker = BrokerZnode((Endpoint("SSL", "::1", 9093, 1),), "r1", (FeatureRange("f", 1, 3),), 9999, 5)
    assert broker.encode() == (
        b'{"features":{"f":{"min_version":1,"max_version":3}},"listener_security_protocol_map":{"SSL":"SSL"},'
        b'"endpoints":["SSL://[::1]:9093"],"rack":"r1","jmx_port":9999,"port":-1,"host":null,"version":5,'
        b'"timestamp":"5"}'
    )
    assert BrokerZnode.decode("", broker.encode()) == broker


@pytest.mark.parametrize(
    ("text", "endpoints", "rack"),
    [
        (
            b'{"version":1,"host":"a","port":9092,"jmx_port":9999,"timestamp":"2"}',
            (Endpoint("PLAINTEXT", "a", 9092),),
            None,
        ),
        (
            b'{"version":2,"host":"a","port":9092,"jmx_port":-1,"timestamp":"2",'
            b'"endpoints":["PLAINTEXT://a:9092","SSL://a:9093"]}',
            (Endpoint("PLAINTEXT", "a", 9092), Endpoint("SSL", "a", 9093, 1)),
            None,
        ),
        (
            b'{"version":3,"host":"a","port":9092,"jmx_port":-1,"timestamp":"2","endpoints":["PLAINTEXT://a:9092"],'
            b'"rack":"x"}',
            (Endpoint("PLAINTEXT", "a", 9092),),
            "x",
        ),
        (
            b'{"version":4,"host":"a","port":1,"jmx_port":-1,"timestamp":"2","endpoints":["CLIENT://a:1","R://:2"],'
            b'"listener_security_protocol_map":{"CLIENT":"SASL_SSL","R":"PLAINTEXT"},"rack":null}',
            (Endpoint("CLIENT", "a", 1, 3), Endpoint("R", "", 2, 0)),
            None,
        ),
    ],
)
def test_registrations_of_older_brokers_are_read(
    text: bytes, endpoints: tuple[Endpoint, ...], rack: str | None
) -> None:
    broker = BrokerZnode.decode("/brokers/ids/1", text)
    assert (broker.endpoints, broker.rack, broker.features) == (endpoints, rack, ())


@pytest.mark.parametrize("version", [1, 2])
def test_topics_without_ids_are_read(version: int) -> None:
    text = b'{"version":%d,"partitions":{"1":[2,1],"0":[1,2]}}' % version
    topic = TopicZnode.decode("/brokers/topics/t", text)
    assert topic == TopicZnode(None, {0: Assignment((1, 2)), 1: Assignment((2, 1))})
    assert list(topic.partitions) == [0, 1]


def test_the_first_change_notifications_and_features_are_read() -> None:
    assert znodes.decode_config_change("", b'{"version":1,"entity_type":"topics","entity_name":"t"}') == "topics/t"
    old = b'{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
    assert znodes.decode_features("", old) == {"f": 3}
    assert znodes.decode_features("", b'{"version":2,"status":0,"features":{"f":{"max_version_level":3}}}') is None


def test_requests_of_tools_are_encoded_and_decoded() -> None:
    reassignments = {("t", 0): (1, 2), ("u", 3): (3,)}
    assert znodes.decode_reassignment("", znodes.encode_reassignment(reassignments)) == reassignments
    text = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"u","partition":3}]}'
    assert znodes.encode_partitions(reassignments) == text
    assert znodes.decode_partitions("", text) == list(reassignments)
    assert znodes.encode_log_dir_event(3) == b'{"version":1,"broker":3,"event":1}'
    assert znodes.decode_log_dir_event("", b'{"version":1,"broker":3,"event":1}') == 3


@pytest.mark.parametrize(
    ("form", "text", "why"),
    [
        (TopicZnode, b"", "b'' is not JSON"),
        (TopicZnode, b"[1]", "is not a JSON object"),
        (TopicZnode, b'{"partitions":{"x":[1]}}', "'x' is not a partition number"),
        (TopicZnode, b'{"partitions":{"0":["1"]}}', "'0' must be a list of integers, got ['1']"),
        (TopicZnode, b'{"partitions":{},"topic_id":"short"}', "is not a Kafka UUID"),
        (PartitionState, b'{"leader":1}', "'leader_epoch' must be an integer, got nothing"),
        (PartitionState, b'{"leader":true}', "'leader' must be an integer, got True"),
        (PartitionState, b"\xff\xfe{", "is not JSON"),
        (BrokerZnode, b'{"version":0}', "unknown version 0 of a broker registration"),
        (BrokerZnode, b'{"version":2,"endpoints":["PLAINTEXT:/x"]}', "'PLAINTEXT:/x' is not an endpoint"),
        (BrokerZnode, b'{"version":2,"endpoints":["NEW://x:1"]}', "'NEW://x:1' is not an endpoint"),
        (ControllerZnode, b'{"version":2}', "'brokerid' must be an integer, got nothing"),
        (ProducerIdBlock, b'{"broker":1,"block_start":"x"}', "'block_start' must be an integer in a string"),
    ],
)
def test_errors_of_damaged_znodes_name_the_path(form: Any, text: bytes, why: str) -> None:
    with pytest.raises(InvalidZnodeError) as raised:
        form.decode("/some/path", text)
    assert str(raised.value).startswith("/some/path: ")
    assert why in str(raised.value)


def test_an_absent_configuration_is_empty_and_a_damaged_one_an_error() -> None:
    assert znodes.decode_config("/p", b"") == {}
    with pytest.raises(InvalidZnodeError, match="'a' must be a string, got 1"):
        znodes.decode_config("/p", b'{"version":1,"config":{"a":1}}')


def test_names_of_users_are_sanitized_as_kafka_does() -> None:
    assert paths.sanitized("CN=a b*~,ä") == "CN%3Da%20b%2A~%2C%C3%A4"
    assert paths.desanitized(paths.sanitized("CN=a b*~,ä/<default>")) == "CN=a b*~,ä/<default>"


def test_members_have_the_order_of_a_hash_table() -> None:
    assert list(in_hash_order({"compression.type": "", "segment.bytes": "", "cleanup.policy": ""})) == [
        "compression.type",
        "cleanup.policy",
        "segment.bytes",
    ]


def test_acls_are_read_and_errors_name_the_path() -> None:
    pattern = Pattern(5, "tx:1", LITERAL)
    text = b'{"version":1,"acls":[{"host":"h","permissionType":"DENY","operation":"write","principal":"User:a"}]}'
    (entry,) = decode_acls(pattern, text)
    assert (entry.resource_type, entry.resource_name, entry.operation, entry.permission_type) == (5, "tx:1", 4, 2)
    assert pattern.path == "/kafka-acl/TransactionalId/tx:1"
    assert pattern.encode_change() == b"TRANSACTIONAL_ID:tx:1"
    assert Pattern.decode_change("/kafka-acl-changes/acl_changes_0000000001", b"TRANSACTIONAL_ID:tx:1") == pattern
    assert decode_acls(pattern, b"") == []
    with pytest.raises(InvalidZnodeError, match="'Dream' is not one of All, Read"):
        decode_acls(pattern, text.replace(b"write", b"Dream"))
    with pytest.raises(InvalidZnodeError, match="unknown version 2 of ACLs"):
        decode_acls(pattern, text.replace(b'"version":1', b'"version":2'))
    with pytest.raises(InvalidZnodeError, match="not TYPE:NAME of a resource"):
        Pattern.decode_change("/kafka-acl-changes/acl_changes_0000000001", b"what")
