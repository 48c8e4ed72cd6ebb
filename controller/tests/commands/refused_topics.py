"""New topics and new partitions that a controller refuses, each with the error and the message of Kafka."""

from __future__ import annotations

from collections.abc import Sequence

from odradek_wire.messages.create_partitions import CreatePartitionsRequest
from odradek_wire.messages.create_topics import CreateTopicsRequest

CreatableTopic = CreateTopicsRequest.CreatableTopic


def topic(
    name: str = "x",
    partitions: int = 1,
    factor: int = 1,
    assignments: Sequence[tuple[int, list[int]]] = (),
    configs: Sequence[tuple[str, str | None]] = (),
) -> CreatableTopic:
    return CreatableTopic(
        name,
        partitions,
        factor,
        [CreateTopicsRequest.CreatableReplicaAssignment(index, brokers) for index, brokers in assignments],
        [CreateTopicsRequest.CreatableTopicConfig(key, value) for key, value in configs],
    )


UNREACHABLE = (
    "Unable to replicate the partition {0} time(s): The target replication factor of {0} cannot be reached because "
    "only 1 broker(s) are registered or some brokers have all their log directories cordoned."
)
ILLEGAL = "Topic name is invalid: '{}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
WITH_PARTITIONS = "A manual partition assignment was specified, but numPartitions was not set to -1."
WITH_FACTOR = "A manual partition assignment was specified, but replication factor was not set to -1."
NOT_CONSECUTIVE = "partitions should be a consecutive 0-based integer sequence"
NOT_POSITIVE = "Number of partitions was set to an invalid non-positive value."
BAD_FACTOR = "Replication factor must be larger than 0, or -1 to use the default value."
SWITCHES = "It is invalid to set `remote.log.delete.on.disable` or `remote.log.copy.disable` under Zookeeper's mode."
TIERED = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
LONG = "a" * 250

REFUSED = [
    (topic("ok"), "TOPIC_ALREADY_EXISTS", "Topic 'ok' already exists."),
    (topic(""), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: the empty string is not allowed"),
    (topic("."), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: '.' is not allowed"),
    (topic(".."), "INVALID_TOPIC_EXCEPTION", "Topic name is invalid: '..' is not allowed"),
    (
        topic(LONG),
        "INVALID_TOPIC_EXCEPTION",
        f"Topic name is invalid: the length of '{LONG}' is longer than the max allowed length 249",
    ),
    (topic("a b"), "INVALID_TOPIC_EXCEPTION", ILLEGAL.format("a b")),
    (topic("ümlaut"), "INVALID_TOPIC_EXCEPTION", ILLEGAL.format("ümlaut")),
    (topic("a_b"), "INVALID_TOPIC_EXCEPTION", "Topic 'a_b' collides with existing topic: a.b"),
    (topic("__cluster_metadata"), "INVALID_REQUEST", "Creation of internal topic __cluster_metadata is prohibited."),
    (topic("x", 0), "INVALID_PARTITIONS", NOT_POSITIVE),
    (topic("x", -2), "INVALID_PARTITIONS", NOT_POSITIVE),
    (topic("x", 1, 0), "INVALID_REPLICATION_FACTOR", BAD_FACTOR),
    (topic("x", 1, -2), "INVALID_REPLICATION_FACTOR", BAD_FACTOR),
    (topic("x", 1, 2), "INVALID_REPLICATION_FACTOR", UNREACHABLE.format(2)),
    (topic("x", 1, 30000), "INVALID_REPLICATION_FACTOR", UNREACHABLE.format(30000)),
    (topic("x", 20000), "POLICY_VIOLATION", "Excessively large number of partitions per request."),
    (topic("x", 2, -1, [(0, [1])]), "INVALID_REQUEST", WITH_PARTITIONS),
    (topic("x", -1, 1, [(0, [1])]), "INVALID_REQUEST", WITH_FACTOR),
    (topic("x", 2, 1, [(0, [1])]), "INVALID_REQUEST", WITH_FACTOR),
    (topic("x", -1, -1, [(1, [1])]), "INVALID_REPLICA_ASSIGNMENT", NOT_CONSECUTIVE),
    (topic("x", -1, -1, [(-1, [1])]), "INVALID_REPLICA_ASSIGNMENT", NOT_CONSECUTIVE),
    (topic("x", -1, -1, [(0, [1]), (2, [1])]), "INVALID_REPLICA_ASSIGNMENT", NOT_CONSECUTIVE),
    (
        topic("x", -1, -1, [(0, [])]),
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes an empty replica list.",
    ),
    (
        topic("x", -1, -1, [(0, [1, 1])]),
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes the broker 1 more than once.",
    ),
    (
        topic("x", -1, -1, [(0, [1]), (1, [1, 2])]),
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes broker 2, but no such broker is registered.",
    ),
    (
        topic("x", -1, -1, [(0, [-1])]),
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes broker -1, but no such broker is registered.",
    ),
    (
        topic("x", -1, -1, [(0, [1]), (0, [1])]),
        "INVALID_REPLICA_ASSIGNMENT",
        "Found multiple manual partition assignments for partition 0",
    ),
    (topic(configs=[("foo", "bar"), ("retention.ms", "abc")]), "INVALID_CONFIG", "Unknown topic config name: foo"),
    (
        topic(configs=[("retention.ms", "abc")]),
        "INVALID_CONFIG",
        "Invalid value abc for configuration retention.ms: Not a number of type LONG",
    ),
    (
        topic(configs=[("retention.ms", "-5")]),
        "INVALID_CONFIG",
        "Invalid value -5 for configuration retention.ms: Value must be at least -1",
    ),
    (
        topic(configs=[("retention.ms", None)]),
        "INVALID_CONFIG",
        "Null value not supported for topic configs: retention.ms",
    ),
    (
        topic(configs=[("cleanup.policy", "what")]),
        "INVALID_CONFIG",
        "Invalid value what for configuration cleanup.policy: String must be one of: compact, delete",
    ),
    (
        topic(configs=[("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")]),
        "INVALID_CONFIG",
        "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
    ),
    (topic(configs=[("remote.storage.enable", "true")]), "INVALID_CONFIG", TIERED),
]


def grow(name: str, count: int, assignments: list[list[int]] | None = None) -> CreatePartitionsRequest:
    rows = (
        None
        if assignments is None
        else [CreatePartitionsRequest.CreatePartitionsAssignment(row) for row in assignments]
    )
    return CreatePartitionsRequest([CreatePartitionsRequest.CreatePartitionsTopic(name, count, rows)], 60_000)


FEW = "Attempted to add {} additional partition(s), but only {} assignment(s) were specified."
GROW_REFUSED = [
    (grow("nope", 2), "UNKNOWN_TOPIC_OR_PARTITION", None),
    (grow("ok", 1), "INVALID_PARTITIONS", "Topic already has 1 partition(s)."),
    (grow("ok", 0), "INVALID_PARTITIONS", "The topic ok currently has 1 partition(s); 0 would not be an increase."),
    (grow("ok", -1), "INVALID_PARTITIONS", "The topic ok currently has 1 partition(s); -1 would not be an increase."),
    (grow("ok", 2, []), "INVALID_REPLICA_ASSIGNMENT", FEW.format(1, 0)),
    (grow("ok", 3, [[1]]), "INVALID_REPLICA_ASSIGNMENT", FEW.format(2, 1)),
    (grow("ok", 2, [[1], [1]]), "INVALID_REPLICA_ASSIGNMENT", FEW.format(1, 2)),
    (
        grow("ok", 2, [[9]]),
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes broker 9, but no such broker is registered.",
    ),
    (
        grow("ok", 2, [[1, 1]]),
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes the broker 1 more than once.",
    ),
    (
        grow("ok", 2, [[]]),
        "INVALID_REPLICA_ASSIGNMENT",
        "The manual partition assignment includes an empty replica list.",
    ),
]
