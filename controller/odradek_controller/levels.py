"""The feature levels of a cluster and what follows from them: record versions, and the API ranges of a release.

A level is a number for each feature (`metadata.version` 21 is 3.9-IV0, 30 is 4.3-IV0). Owns the features that each
release supports, finalizes in a new cluster and advertises, and the versions of metadata records. Source: ApiVersions
of running brokers of 3.9.1 (KRaft), 4.0.0 and 4.3.0, their bootstrap records, and MetadataVersion.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeVar

from odradek_wire.apis import ApiKey

from .configs.table import Release

METADATA_VERSION = "metadata.version"
KRAFT_VERSION = "kraft.version"
GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"
SHARE_VERSION = "share.version"
STREAMS_VERSION = "streams.version"
ELIGIBLE_LEADERS_VERSION = "eligible.leader.replicas.version"

FEATURE_APIS: Mapping[str, ApiKey] = {
    GROUP_VERSION: ApiKey.CONSUMER_GROUP_HEARTBEAT,
    SHARE_VERSION: ApiKey.SHARE_GROUP_HEARTBEAT,
    STREAMS_VERSION: ApiKey.STREAMS_GROUP_HEARTBEAT,
}
"""Features that announce a protocol to clients, each with the API that a member of such a group calls first."""


class LevelRange(NamedTuple):
    """The levels of one feature that a release supports, both ends included."""

    low: int
    high: int


Features = Mapping[str, LevelRange]
ApiRanges = Mapping[int, tuple[int, int]]


Level = TypeVar("Level")


def served_features(features: Mapping[str, Level], served: Container[int]) -> dict[str, Level]:
    """Return the features without those in `FEATURE_APIS` whose API is not in `served`, in the same order.

    The values may be supported ranges or finalized levels.
    """
    return {name: level for name, level in features.items() if name not in FEATURE_APIS or FEATURE_APIS[name] in served}


class Emulation(Enum):
    """The release that the cluster emulates. UNION serves every API version of 3.9 and 4.3, with 4.3's features."""

    KAFKA_3_9 = "3.9"
    KAFKA_4_0 = "4.0"
    KAFKA_4_3 = "4.3"
    UNION = "union"

    @property
    def supported(self) -> Features:
        """The levels of each feature that the release supports, in the order of its ApiVersions response.

        Includes features whose APIs brokers do not serve, because a cluster may have finalized them; see
        `served_features`."""
        return _SUPPORTED[self]

    @property
    def initial(self) -> Levels:
        """The levels of a newly formatted cluster."""
        return Levels(dict(_INITIAL[self]))

    @property
    def release(self) -> Release:
        """The release whose configurations the cluster has."""
        return Release.KAFKA_3_9 if self is Emulation.KAFKA_3_9 else Release.KAFKA_4_3

    @property
    def apis(self) -> ApiRanges | None:
        """The versions of each API that the release advertises to clients; None for all that brokers serve."""
        return _api_ranges(self)

    def advertised_features(self, api_versions_version: int) -> Features:
        """Return the supported features in an ApiVersions response of this version.

        Versions below 4 omit features whose range starts at 0 (KAFKA-17011).
        """
        if api_versions_version >= 4:
            return self.supported
        return {name: levels for name, levels in self.supported.items() if levels.low > 0}


@dataclass(frozen=True, slots=True)
class Levels:
    """The finalized features of a cluster; an absent feature has level 0.

    A cluster in ZooKeeper mode has `inter.broker.protocol.version` in place of a metadata version, numbered in the same
    way. It stores neither the directories nor the eligible leaders of partitions.
    """

    finalized: Mapping[str, int] = field(default_factory=dict)
    inter_broker_protocol: int | None = None

    def level(self, feature: str) -> int:
        return self.finalized.get(feature, 0)

    @property
    def metadata_version(self) -> int:
        protocol = self.inter_broker_protocol
        return self.level(METADATA_VERSION) if protocol is None else protocol

    @property
    def elr_enabled(self) -> bool:
        """KIP-966: partitions record the replicas that left the ISR with all committed records."""
        return self.level(ELIGIBLE_LEADERS_VERSION) >= 1

    @property
    def register_broker_record_version(self) -> int:
        level = self.metadata_version
        return 4 if level >= 30 else 3 if level >= 17 else 2 if level >= 8 else 1

    @property
    def partition_record_version(self) -> int:
        """The version of PartitionRecord and of PartitionChangeRecord."""
        return 2 if self.metadata_version >= 23 else 1 if self.directory_assignment else 0

    @property
    def fetch_version(self) -> int:
        """The version of the followers' Fetch requests."""
        level = self.metadata_version
        return 18 if level >= 27 else 17 if level >= 21 else 16 if level >= 19 else 15 if level >= 10 else 13

    @property
    def write_txn_markers_version(self) -> int:
        """The version of the coordinators' WriteTxnMarkers requests; Kafka 3.9 has no version 2."""
        return 2 if self.inter_broker_protocol is None else 1

    @property
    def transaction_version(self) -> int:
        """KIP-890: from 1 on transaction records have flexible fields, from 2 on each transaction has its own producer
        epoch. At most 1 in ZooKeeper mode, because the cluster may have brokers of Kafka 3.9, which has no level 2."""
        level = self.level(TRANSACTION_VERSION)
        return level if self.inter_broker_protocol is None else min(level, 1)

    @property
    def directory_assignment(self) -> bool:
        """KIP-858: partitions are assigned to log directories by id."""
        return self.metadata_version >= 17 and self.inter_broker_protocol is None

    @property
    def metadata_transactions(self) -> bool:
        """KIP-868: BeginTransaction and EndTransaction enclose records that are applied together."""
        return self.metadata_version >= 13

    @property
    def bumps_leader_epoch(self) -> bool:
        """Whether a change of a partition increments the leader epoch even if the leader stays.

        In ZooKeeper mode brokers ignore a LeaderAndIsr request with a leader epoch that they know."""
        return self.inter_broker_protocol is not None

    @property
    def remote_log_switches(self) -> bool:
        """Whether topics may set `remote.log.copy.disable` and `remote.log.delete.on.disable` (KIP-950)."""
        return self.inter_broker_protocol is None


_39: Features = {KRAFT_VERSION: LevelRange(0, 1), METADATA_VERSION: LevelRange(1, 21)}
_40: Features = {
    GROUP_VERSION: LevelRange(0, 1),
    KRAFT_VERSION: LevelRange(0, 1),
    METADATA_VERSION: LevelRange(7, 25),
    TRANSACTION_VERSION: LevelRange(0, 2),
    ELIGIBLE_LEADERS_VERSION: LevelRange(0, 1),
}
_43: Features = {
    GROUP_VERSION: LevelRange(0, 1),
    KRAFT_VERSION: LevelRange(0, 1),
    METADATA_VERSION: LevelRange(7, 30),
    SHARE_VERSION: LevelRange(0, 1),
    STREAMS_VERSION: LevelRange(0, 1),
    TRANSACTION_VERSION: LevelRange(0, 2),
    ELIGIBLE_LEADERS_VERSION: LevelRange(0, 1),
}
_SUPPORTED = {
    Emulation.KAFKA_3_9: _39,
    Emulation.KAFKA_4_0: _40,
    Emulation.KAFKA_4_3: _43,
    Emulation.UNION: _43,
}

# In the order of the bootstrap records that `kafka-storage format` of the release writes.
_43_INITIAL = {
    METADATA_VERSION: 30,
    ELIGIBLE_LEADERS_VERSION: 1,
    GROUP_VERSION: 1,
    SHARE_VERSION: 1,
    STREAMS_VERSION: 1,
    TRANSACTION_VERSION: 2,
}
_INITIAL = {
    Emulation.KAFKA_3_9: {METADATA_VERSION: 21},
    Emulation.KAFKA_4_0: {METADATA_VERSION: 25, GROUP_VERSION: 1, TRANSACTION_VERSION: 2},
    Emulation.KAFKA_4_3: _43_INITIAL,
    Emulation.UNION: _43_INITIAL,
}

# "key:low-high" of every API that a broker of the release advertises on a client listener.
_RANGES = {
    Emulation.KAFKA_3_9: """
        0:0-11 1:0-17 2:0-9 3:0-12 8:0-9 9:0-9 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-5 16:0-5 17:0-1 18:0-4 19:0-7
        20:0-6 21:0-2 22:0-5 23:0-4 24:0-5 25:0-4 26:0-4 27:0-1 28:0-4 29:0-3 30:0-3 31:0-3 32:0-4 33:0-2 34:0-2
        35:0-4 36:0-2 37:0-3 38:0-3 39:0-2 40:0-2 41:0-3 42:0-2 43:0-2 44:0-1 45:0-0 46:0-0 47:0-0 48:0-1 49:0-1
        50:0-0 51:0-0 55:0-2 57:0-1 60:0-1 61:0-0 64:0-0 65:0-0 66:0-1 68:0-0 69:0-0 74:0-0 75:0-0 80:0-0 81:0-0
    """,
    Emulation.KAFKA_4_0: """
        0:0-12 1:4-17 2:1-10 3:0-13 8:2-9 9:1-9 10:0-6 11:2-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-4
        19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-1 28:0-5 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2
        34:1-2 35:1-4 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-0 46:0-0 47:0-0 48:0-1
        49:0-1 50:0-0 51:0-0 55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-1 68:0-1 69:0-1 74:0-0 75:0-0 80:0-0
        81:0-0
    """,
    Emulation.KAFKA_4_3: """
        0:0-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-4
        19:2-7 20:1-6 21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-5 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2
        34:1-2 35:1-5 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-1 46:0-0 47:0-0 48:0-1
        49:0-1 50:0-0 51:0-0 55:0-2 57:0-2 60:0-2 61:0-0 64:0-0 65:0-0 66:0-2 68:0-1 69:0-1 74:0-1 75:0-0 76:1-1
        77:1-1 78:1-2 79:1-2 80:0-1 81:0-0 83:0-0 84:0-0 85:0-1 86:0-0 87:0-1 88:0-0 89:0-0 90:0-1 91:0-0 92:0-0
    """,
}


def _api_ranges(emulation: Emulation) -> ApiRanges | None:
    if emulation is Emulation.UNION:
        return None
    found = {}
    for word in _RANGES[emulation].split():
        key, _, versions = word.partition(":")
        low, _, high = versions.partition("-")
        found[int(key)] = (int(low), int(high))
    return found
