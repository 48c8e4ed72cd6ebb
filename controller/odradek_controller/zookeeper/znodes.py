"""The data of the znodes of a Kafka 3.9 cluster: the formats that its brokers write, and the older ones that they read.

Leaves paths to `paths`, the mapping to the image to `load` and `znode_operations`, quotas and credentials to
`config_entities`, and ACLs to `acl_znodes`. Decoding takes the path of the znode only for InvalidZnodeError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek_wire.uuid import Uuid, uuid_from_text, uuid_to_text

from ..image import RECOVERED, Endpoint, FeatureRange
from .json_text import InvalidZnodeError, JsonObject, decode, encode, in_hash_order

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's security protocols, indexed by their numbers."""

TopicPartition = tuple[str, int]


# -- brokers ----------------------------------------------------------------------------------------------------------


class BrokerZnode(NamedTuple):
    """`/brokers/ids/N`, version 5. The broker epoch is the czxid of the znode."""

    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: tuple[FeatureRange, ...] = ()
    jmx_port: int = -1
    timestamp_ms: int = 0

    def encode(self) -> bytes:
        plaintext = next((endpoint for endpoint in self.endpoints if endpoint.security_protocol == 0), None)
        members: dict[str, object] = {
            "version": 5,
            "host": None if plaintext is None else plaintext.host,
            "port": -1 if plaintext is None else plaintext.port,
            "endpoints": [f"{e.name}://{_bracketed(e.host)}:{e.port}" for e in self.endpoints],
            "jmx_port": self.jmx_port,
            "timestamp": str(self.timestamp_ms),
            "listener_security_protocol_map": {e.name: PROTOCOLS[e.security_protocol] for e in self.endpoints},
            "features": {
                feature.name: {
                    "min_version": feature.min_supported_version,
                    "max_version": feature.max_supported_version,
                }
                for feature in self.features
            },
        }
        if self.rack is not None:
            members["rack"] = self.rack
        return encode(in_hash_order(members))

    @staticmethod
    def decode(path: str, data: bytes) -> BrokerZnode:
        """Decode versions 1 to 5. Version 1 has one endpoint; before 4 a listener has the name of its protocol."""
        json = decode(path, data)
        version = json.integer("version")
        if version < 1:
            raise InvalidZnodeError(path, f"unknown version {version} of a broker registration")
        if version == 1:
            endpoints: tuple[Endpoint, ...] = (Endpoint(PROTOCOLS[0], json.text("host"), json.integer("port")),)
        else:
            endpoints = tuple(_endpoint(json, text) for text in json.texts("endpoints"))
        ranges = json.object("features")
        features = tuple(
            FeatureRange(name, ranges.object(name).integer("min_version"), ranges.object(name).integer("max_version"))
            for name in ranges.members
        )
        timestamp_ms = json.integer_in_string("timestamp") if "timestamp" in json else 0
        return BrokerZnode(
            endpoints, json.optional_text("rack"), features, json.integer("jmx_port", default=-1), timestamp_ms
        )


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _endpoint(json: JsonObject, text: str) -> Endpoint:
    name, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    names = json.object("listener_security_protocol_map")
    protocol = names.text(name) if names.members else name
    if protocol not in PROTOCOLS or not port.isdecimal():
        raise InvalidZnodeError(json.path, f"{text!r} is not an endpoint")
    return Endpoint(name, host.removeprefix("[").removesuffix("]"), int(port), PROTOCOLS.index(protocol))


# -- topics -----------------------------------------------------------------------------------------------------------


class Assignment(NamedTuple):
    """The replicas of a partition, and those that a reassignment adds and removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicZnode(NamedTuple):
    """`/brokers/topics/T`, version 3. Versions 1 and 2, of brokers before Kafka 2.8, have no topic id."""

    topic_id: Uuid | None
    partitions: Mapping[int, Assignment]

    def encode(self) -> bytes:
        items = self.partitions.items()
        members: dict[str, object] = {
            "version": 3,
            "partitions": in_hash_order({str(index): found.replicas for index, found in items}),
            "adding_replicas": in_hash_order({str(index): found.adding for index, found in items if found.adding}),
            "removing_replicas": in_hash_order(
                {str(index): found.removing for index, found in items if found.removing}
            ),
        }
        if self.topic_id is not None:
            members["topic_id"] = uuid_to_text(self.topic_id)
        return encode(in_hash_order(members, buckets=8))

    @staticmethod
    def decode(path: str, data: bytes) -> TopicZnode:
        json = decode(path, data)
        topic_id = None
        if "topic_id" in json:
            try:
                topic_id = uuid_from_text(json.text("topic_id"))
            except ValueError as error:
                raise InvalidZnodeError(path, str(error)) from None
        adding, removing = json.object("adding_replicas"), json.object("removing_replicas")
        replicas = json.object("partitions")
        partitions = {}
        for key in replicas.members:
            if not key.isdecimal():
                raise InvalidZnodeError(path, f"{key!r} is not a partition number")
            partitions[int(key)] = Assignment(
                replicas.integers(key),
                adding.integers(key) if key in adding else (),
                removing.integers(key) if key in removing else (),
            )
        return TopicZnode(topic_id, dict(sorted(partitions.items())))


class PartitionState(NamedTuple):
    """`/brokers/topics/T/partitions/P/state`, version 1. The partition epoch is the version of the znode."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    leader_recovery_state: int = RECOVERED

    def encode(self) -> bytes:
        members: dict[str, object] = {
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "version": 1,
            "leader_recovery_state": self.leader_recovery_state,
            "leader_epoch": self.leader_epoch,
            "isr": self.isr,
        }
        if self.leader_recovery_state == RECOVERED:
            del members["leader_recovery_state"]
        return encode(members)

    @staticmethod
    def decode(path: str, data: bytes) -> PartitionState:
        json = decode(path, data)
        return PartitionState(
            json.integer("leader"),
            json.integer("leader_epoch"),
            json.integers("isr"),
            json.integer("controller_epoch"),
            json.integer("leader_recovery_state", default=RECOVERED),
        )


# -- the controller ---------------------------------------------------------------------------------------------------


class ControllerZnode(NamedTuple):
    """`/controller`, version 2. During a migration to KRaft it has the epoch of the KRaft controller."""

    broker_id: int
    timestamp_ms: int = 0
    kraft_epoch: int = -1

    def encode(self) -> bytes:
        return encode(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": self.kraft_epoch,
            }
        )

    @staticmethod
    def decode(path: str, data: bytes) -> ControllerZnode:
        json = decode(path, data)
        timestamp_ms = json.integer_in_string("timestamp") if "timestamp" in json else 0
        return ControllerZnode(json.integer("brokerid"), timestamp_ms, json.integer("kraftControllerEpoch", default=-1))


def encode_number(number: int) -> bytes:
    """Encode `/controller_epoch`, or an offset of OffsetCommit version 0."""
    return str(number).encode()


def decode_number(path: str, data: bytes) -> int:
    try:
        return int(data)
    except ValueError:
        raise InvalidZnodeError(path, f"{data!r} is not a number") from None


# -- configurations ---------------------------------------------------------------------------------------------------


def encode_config(config: Mapping[str, str]) -> bytes:
    """Encode `/config/{topics,brokers,clients,users,ips}/X`, version 1."""
    return encode({"version": 1, "config": in_hash_order(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Decode a configuration. It is empty for a znode without data: the parent of a user's clients may have none."""
    if not data:
        return {}
    config = decode(path, data).object("config")
    return {name: config.text(name) for name in config.members}


def encode_config_change(entity_path: str) -> bytes:
    """Encode `/config/changes/config_change_`, version 2: the path of the changed entity."""
    return encode({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    """Return the path of the changed entity. Version 1 (before 0.10.1) has the type and the name of the entity."""
    json = decode(path, data)
    match json.integer("version"):
        case 1:
            return f"{json.text('entity_type')}/{json.text('entity_name')}"
        case 2:
            return json.text("entity_path")
        case version:
            raise InvalidZnodeError(path, f"unknown version {version} of a change notification")


# -- requests to the controller ---------------------------------------------------------------------------------------


def encode_reassignment(replicas: Mapping[TopicPartition, tuple[int, ...]]) -> bytes:
    """Encode `/admin/reassign_partitions`, version 1: the reassignments in progress."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": brokers} for (topic, index), brokers in replicas.items()
    ]
    return encode({"version": 1, "partitions": partitions})


def decode_reassignment(path: str, data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    items = decode(path, data).objects("partitions")
    return {(item.text("topic"), item.integer("partition")): item.integers("replicas") for item in items}


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode `/admin/preferred_replica_election` or `/isr_change_notification/isr_change_`, version 1."""
    named = [{"topic": topic, "partition": index} for topic, index in partitions]
    return encode({"version": 1, "partitions": named})


def decode_partitions(path: str, data: bytes) -> list[TopicPartition]:
    items = decode(path, data).objects("partitions")
    return [(item.text("topic"), item.integer("partition")) for item in items]


_LOG_DIR_FAILURE = 1


def encode_log_dir_event(broker_id: int) -> bytes:
    """Encode `/log_dir_event_notification/log_dir_event_`, version 1: a log directory of the broker has failed."""
    return encode({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILURE})


def decode_log_dir_event(path: str, data: bytes) -> int:
    return decode(path, data).integer("broker")


# -- producer ids, features, the cluster id ---------------------------------------------------------------------------


class ProducerIdBlock(NamedTuple):
    """`/latest_producer_id_block`, version 1: the last allocated block, from `first` to `last`, both included."""

    broker_id: int
    first: int
    last: int

    def encode(self) -> bytes:
        return encode(
            {"version": 1, "broker": self.broker_id, "block_start": str(self.first), "block_end": str(self.last)}
        )

    @staticmethod
    def decode(path: str, data: bytes) -> ProducerIdBlock:
        json = decode(path, data)
        return ProducerIdBlock(
            json.integer("broker"), json.integer_in_string("block_start"), json.integer_in_string("block_end")
        )


def encode_features(features: Mapping[str, int]) -> bytes:
    """Encode `/feature`, version 2, with status 1 (enabled). Kafka 3.9 finalizes no feature in ZooKeeper mode."""
    levels = {name: {"max_version_level": level} for name, level in features.items()}
    return encode({"features": levels, "version": 2, "status": 1})


def decode_features(path: str, data: bytes) -> dict[str, int] | None:
    """Decode versions 1 and 2. Returns None for status 0: the inter-broker protocol is older than 2.7."""
    json = decode(path, data)
    version = json.integer("version")
    if version not in (1, 2):
        raise InvalidZnodeError(path, f"unknown version {version} of features")
    if json.integer("status") == 0:
        return None
    features = json.object("features")
    return {name: features.object(name).integer("max_version_level") for name in features.members}


def encode_cluster_id(cluster_id: str) -> bytes:
    """Encode `/cluster/id`, version "1"."""
    return encode({"version": "1", "id": cluster_id})


def decode_cluster_id(path: str, data: bytes) -> str:
    return decode(path, data).text("id")
