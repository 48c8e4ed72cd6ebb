"""The table of APIs: key, name, header versions, and the versions of Kafka 3.9.1, of Kafka 4.3.0 and of our codec.

`versions` is the union of both releases: all versions that the codec reads and writes. The broker decides which of them
it serves.
"""

from enum import IntEnum
from importlib import import_module

from odradek_wire.message import Message
from odradek_wire.notation import NEVER

Versions = tuple[int, int]
"""Lowest and highest version, both inclusive, as Kafka states them."""


class ApiKey(IntEnum):
    """Kafka's API keys, by the names of the protocol guide."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class ApiInfo:
    """One API in both releases. A release without the API has no versions (None) and no listeners."""

    __slots__ = (
        "flexible_from",
        "kafka_3_9",
        "kafka_4_3",
        "key",
        "listeners_3_9",
        "listeners_4_3",
        "module",
        "name",
        "unstable_3_9",
        "unstable_4_3",
        "versions",
    )

    def __init__(
        self,
        *,
        key: ApiKey,
        name: str,
        kafka_3_9: Versions | None,
        kafka_4_3: Versions | None,
        flexible_from: int,
        listeners_3_9: str,
        listeners_4_3: str,
        unstable: str,
    ) -> None:
        self.key = key
        self.name = name
        self.module = "odradek_wire.messages." + key.name.lower()
        self.kafka_3_9 = kafka_3_9
        self.kafka_4_3 = kafka_4_3
        known = [versions for versions in (kafka_3_9, kafka_4_3) if versions is not None]
        self.versions = (min(low for low, _ in known), max(high for _, high in known))
        self.flexible_from = flexible_from
        self.listeners_3_9 = frozenset(_LISTENERS[letter] for letter in listeners_3_9)
        self.listeners_4_3 = frozenset(_LISTENERS[letter] for letter in listeners_4_3)
        # The highest version is unstable in that release, which offers it only with unstable.api.versions.enable.
        self.unstable_3_9 = "3.9" in unstable
        self.unstable_4_3 = "4.3" in unstable

    def request_class(self) -> type[Message]:
        """Return the class of the request; imports its module."""
        return getattr(import_module(self.module), self.name + "Request")  # type: ignore[no-any-return]

    def response_class(self) -> type[Message]:
        """Return the class of the response; imports its module."""
        return getattr(import_module(self.module), self.name + "Response")  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"ApiInfo({self.key.value}, {self.name!r}, versions={self.versions})"


_LISTENERS = {"z": "zkBroker", "b": "broker", "c": "controller"}

K = ApiKey
# fmt: off
_ROWS: tuple[tuple[ApiKey, str, Versions | None, Versions | None, int, str, str, str], ...] = (
    # key, name, versions in 3.9.1, in 4.3.0, flexible from, listeners in 3.9.1, in 4.3.0, highest version unstable in
    (K.PRODUCE, "Produce", (0, 11), (3, 13), 9, "zb", "b", ""),
    (K.FETCH, "Fetch", (0, 17), (4, 18), 12, "zbc", "bc", ""),
    (K.LIST_OFFSETS, "ListOffsets", (0, 9), (1, 11), 6, "zb", "b", ""),
    (K.METADATA, "Metadata", (0, 12), (0, 13), 9, "zb", "b", ""),
    (K.LEADER_AND_ISR, "LeaderAndIsr", (0, 7), None, 4, "z", "", ""),
    (K.STOP_REPLICA, "StopReplica", (0, 4), None, 2, "z", "", ""),
    (K.UPDATE_METADATA, "UpdateMetadata", (0, 8), None, 6, "z", "", ""),
    (K.CONTROLLED_SHUTDOWN, "ControlledShutdown", (0, 3), None, 3, "zc", "", ""),
    (K.OFFSET_COMMIT, "OffsetCommit", (0, 9), (2, 10), 8, "zb", "b", ""),
    (K.OFFSET_FETCH, "OffsetFetch", (0, 9), (1, 10), 6, "zb", "b", ""),
    (K.FIND_COORDINATOR, "FindCoordinator", (0, 6), (0, 6), 3, "zb", "b", ""),
    (K.JOIN_GROUP, "JoinGroup", (0, 9), (0, 9), 6, "zb", "b", ""),
    (K.HEARTBEAT, "Heartbeat", (0, 4), (0, 4), 4, "zb", "b", ""),
    (K.LEAVE_GROUP, "LeaveGroup", (0, 5), (0, 5), 4, "zb", "b", ""),
    (K.SYNC_GROUP, "SyncGroup", (0, 5), (0, 5), 4, "zb", "b", ""),
    (K.DESCRIBE_GROUPS, "DescribeGroups", (0, 5), (0, 6), 5, "zb", "b", ""),
    (K.LIST_GROUPS, "ListGroups", (0, 5), (0, 5), 3, "zb", "b", ""),
    (K.SASL_HANDSHAKE, "SaslHandshake", (0, 1), (0, 1), NEVER, "zbc", "bc", ""),
    (K.API_VERSIONS, "ApiVersions", (0, 4), (0, 4), 3, "zbc", "bc", ""),
    (K.CREATE_TOPICS, "CreateTopics", (0, 7), (2, 7), 5, "zbc", "bc", ""),
    (K.DELETE_TOPICS, "DeleteTopics", (0, 6), (1, 6), 4, "zbc", "bc", ""),
    (K.DELETE_RECORDS, "DeleteRecords", (0, 2), (0, 2), 2, "zb", "b", ""),
    (K.INIT_PRODUCER_ID, "InitProducerId", (0, 5), (0, 6), 2, "zb", "b", "4.3"),
    (K.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", (0, 4), (2, 4), 4, "zb", "b", ""),
    (K.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", (0, 5), (0, 5), 3, "zb", "b", ""),
    (K.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", (0, 4), (0, 4), 3, "zb", "b", ""),
    (K.END_TXN, "EndTxn", (0, 4), (0, 5), 3, "zb", "b", ""),
    (K.WRITE_TXN_MARKERS, "WriteTxnMarkers", (0, 1), (1, 2), 1, "zb", "b", ""),
    (K.TXN_OFFSET_COMMIT, "TxnOffsetCommit", (0, 4), (0, 5), 3, "zb", "b", ""),
    (K.DESCRIBE_ACLS, "DescribeAcls", (0, 3), (1, 3), 2, "zbc", "bc", ""),
    (K.CREATE_ACLS, "CreateAcls", (0, 3), (1, 3), 2, "zbc", "bc", ""),
    (K.DELETE_ACLS, "DeleteAcls", (0, 3), (1, 3), 2, "zbc", "bc", ""),
    (K.DESCRIBE_CONFIGS, "DescribeConfigs", (0, 4), (1, 4), 4, "zbc", "bc", ""),
    (K.ALTER_CONFIGS, "AlterConfigs", (0, 2), (0, 2), 2, "zbc", "bc", ""),
    (K.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", (0, 2), (1, 2), 2, "zb", "b", ""),
    (K.DESCRIBE_LOG_DIRS, "DescribeLogDirs", (0, 4), (1, 5), 2, "zb", "b", ""),
    (K.SASL_AUTHENTICATE, "SaslAuthenticate", (0, 2), (0, 2), 2, "zbc", "bc", ""),
    (K.CREATE_PARTITIONS, "CreatePartitions", (0, 3), (0, 3), 2, "zbc", "bc", ""),
    (K.CREATE_DELEGATION_TOKEN, "CreateDelegationToken", (0, 3), (1, 3), 2, "zbc", "bc", ""),
    (K.RENEW_DELEGATION_TOKEN, "RenewDelegationToken", (0, 2), (1, 2), 2, "zbc", "bc", ""),
    (K.EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", (0, 2), (1, 2), 2, "zbc", "bc", ""),
    (K.DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", (0, 3), (1, 3), 2, "zbc", "bc", ""),
    (K.DELETE_GROUPS, "DeleteGroups", (0, 2), (0, 2), 2, "zb", "b", ""),
    (K.ELECT_LEADERS, "ElectLeaders", (0, 2), (0, 2), 2, "zbc", "bc", ""),
    (K.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", (0, 1), (0, 1), 1, "zbc", "bc", ""),
    (K.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", (0, 0), (0, 1), 0, "zbc", "bc", ""),
    (K.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", (0, 0), (0, 0), 0, "zbc", "bc", ""),
    (K.OFFSET_DELETE, "OffsetDelete", (0, 0), (0, 0), NEVER, "zb", "b", ""),
    (K.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", (0, 1), (0, 1), 1, "zb", "b", ""),
    (K.ALTER_CLIENT_QUOTAS, "AlterClientQuotas", (0, 1), (0, 1), 1, "zbc", "bc", ""),
    (K.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", (0, 0), (0, 0), 0, "zbc", "bc", ""),
    (K.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", (0, 0), (0, 0), 0, "zbc", "bc", ""),
    (K.VOTE, "Vote", (0, 1), (0, 2), 0, "c", "c", ""),
    (K.BEGIN_QUORUM_EPOCH, "BeginQuorumEpoch", (0, 1), (0, 1), 1, "c", "c", ""),
    (K.END_QUORUM_EPOCH, "EndQuorumEpoch", (0, 1), (0, 1), 1, "c", "c", ""),
    (K.DESCRIBE_QUORUM, "DescribeQuorum", (0, 2), (0, 2), 0, "bc", "bc", ""),
    (K.ALTER_PARTITION, "AlterPartition", (0, 3), (2, 3), 0, "zc", "c", ""),
    (K.UPDATE_FEATURES, "UpdateFeatures", (0, 1), (0, 2), 0, "zbc", "bc", ""),
    (K.ENVELOPE, "Envelope", (0, 0), (0, 0), 0, "zc", "c", ""),
    (K.FETCH_SNAPSHOT, "FetchSnapshot", (0, 1), (0, 1), 0, "c", "c", ""),
    (K.DESCRIBE_CLUSTER, "DescribeCluster", (0, 1), (0, 2), 0, "zbc", "bc", ""),
    (K.DESCRIBE_PRODUCERS, "DescribeProducers", (0, 0), (0, 0), 0, "zb", "b", ""),
    (K.BROKER_REGISTRATION, "BrokerRegistration", (0, 4), (0, 4), 0, "c", "c", ""),
    (K.BROKER_HEARTBEAT, "BrokerHeartbeat", (0, 1), (0, 2), 0, "c", "c", ""),
    (K.UNREGISTER_BROKER, "UnregisterBroker", (0, 0), (0, 0), 0, "bc", "bc", ""),
    (K.DESCRIBE_TRANSACTIONS, "DescribeTransactions", (0, 0), (0, 0), 0, "zb", "b", ""),
    (K.LIST_TRANSACTIONS, "ListTransactions", (0, 1), (0, 2), 0, "zb", "b", ""),
    (K.ALLOCATE_PRODUCER_IDS, "AllocateProducerIds", (0, 0), (0, 0), 0, "zc", "c", ""),
    (K.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", (0, 0), (0, 1), 0, "zb", "b", ""),
    (K.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", (0, 0), (0, 1), 0, "zb", "b", ""),
    (K.CONTROLLER_REGISTRATION, "ControllerRegistration", (0, 0), (0, 0), 0, "c", "c", ""),
    (K.GET_TELEMETRY_SUBSCRIPTIONS, "GetTelemetrySubscriptions", (0, 0), (0, 0), 0, "b", "b", ""),
    (K.PUSH_TELEMETRY, "PushTelemetry", (0, 0), (0, 0), 0, "b", "b", ""),
    (K.ASSIGN_REPLICAS_TO_DIRS, "AssignReplicasToDirs", (0, 0), (0, 0), 0, "c", "c", ""),
    (K.LIST_CONFIG_RESOURCES, "ListConfigResources", (0, 0), (0, 1), 0, "b", "b", ""),
    (K.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", (0, 0), (0, 0), 0, "b", "b", ""),
    (K.SHARE_GROUP_HEARTBEAT, "ShareGroupHeartbeat", (0, 0), (1, 1), 0, "b", "b", "3.9"),
    (K.SHARE_GROUP_DESCRIBE, "ShareGroupDescribe", (0, 0), (1, 1), 0, "b", "b", "3.9"),
    (K.SHARE_FETCH, "ShareFetch", (0, 0), (1, 2), 0, "b", "b", "3.9"),
    (K.SHARE_ACKNOWLEDGE, "ShareAcknowledge", (0, 0), (1, 2), 0, "b", "b", "3.9"),
    (K.ADD_RAFT_VOTER, "AddRaftVoter", (0, 0), (0, 1), 0, "bc", "bc", ""),
    (K.REMOVE_RAFT_VOTER, "RemoveRaftVoter", (0, 0), (0, 0), 0, "bc", "bc", ""),
    (K.UPDATE_RAFT_VOTER, "UpdateRaftVoter", (0, 0), (0, 0), 0, "c", "c", ""),
    (K.INITIALIZE_SHARE_GROUP_STATE, "InitializeShareGroupState", (0, 0), (0, 0), 0, "b", "b", "3.9"),
    (K.READ_SHARE_GROUP_STATE, "ReadShareGroupState", (0, 0), (0, 0), 0, "b", "b", "3.9"),
    (K.WRITE_SHARE_GROUP_STATE, "WriteShareGroupState", (0, 0), (0, 1), 0, "b", "b", "3.9"),
    (K.DELETE_SHARE_GROUP_STATE, "DeleteShareGroupState", (0, 0), (0, 0), 0, "b", "b", "3.9"),
    (K.READ_SHARE_GROUP_STATE_SUMMARY, "ReadShareGroupStateSummary", (0, 0), (0, 1), 0, "b", "b", "3.9"),
    (K.STREAMS_GROUP_HEARTBEAT, "StreamsGroupHeartbeat", None, (0, 0), 0, "", "b", ""),
    (K.STREAMS_GROUP_DESCRIBE, "StreamsGroupDescribe", None, (0, 0), 0, "", "b", ""),
    (K.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsets", None, (0, 1), 0, "", "b", ""),
    (K.ALTER_SHARE_GROUP_OFFSETS, "AlterShareGroupOffsets", None, (0, 0), 0, "", "b", ""),
    (K.DELETE_SHARE_GROUP_OFFSETS, "DeleteShareGroupOffsets", None, (0, 0), 0, "", "b", ""),
)
# fmt: on

APIS: dict[int, ApiInfo] = {
    key.value: ApiInfo(
        key=key,
        name=name,
        kafka_3_9=kafka_3_9,
        kafka_4_3=kafka_4_3,
        flexible_from=flexible_from,
        listeners_3_9=listeners_3_9,
        listeners_4_3=listeners_4_3,
        unstable=unstable,
    )
    for key, name, kafka_3_9, kafka_4_3, flexible_from, listeners_3_9, listeners_4_3, unstable in _ROWS
}
"""The APIs by key."""


def request_header_version(key: int, version: int) -> int:
    """Return 0, 1 or 2. Raises KeyError for an unknown API."""
    if version >= APIS[key].flexible_from:
        return 2
    # ControlledShutdown v0 is older than the client id in the header.
    return 0 if key == 7 and version == 0 else 1


def response_header_version(key: int, version: int) -> int:
    """Return 0 or 1. Raises KeyError for an unknown API."""
    # ApiVersions keeps header v0 in flexible versions: the client reads this response before it knows the broker's
    # versions (KIP-511).
    return 1 if version >= APIS[key].flexible_from and key != 18 else 0
