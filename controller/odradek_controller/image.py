"""The metadata image: brokers, topics, configurations, levels and the rest, at one offset.

Images are immutable and shared; their mappings are dicts that no code changes. Owns the image, its look-ups, and
`MetadataDelta`, the change of an image that brokers apply. Leaves the replay of records to `replay`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from odradek_wire.uuid import ZERO_UUID, Uuid

from .configs.table import Resource
from .levels import Levels

K = TypeVar("K")
V = TypeVar("V")

NO_LEADER = -1
RECOVERED = 0
"""A leader recovery state: the leader has recovered from the last unclean election, or there was none."""
RECOVERING = 1

# Reserved directory ids (KIP-858).
UNASSIGNED_DIRECTORY = ZERO_UUID
LOST_DIRECTORY = Uuid(bytes(15) + b"\x01")
MIGRATING_DIRECTORY = Uuid(bytes(15) + b"\x02")


class Endpoint(NamedTuple):
    """A listener of a node; the protocol is Kafka's number (0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL)."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


class FeatureRange(NamedTuple):
    """The levels of one feature that a node supports, both ends included."""

    name: str
    min_supported_version: int
    max_supported_version: int


class BrokerRegistration(NamedTuple):
    """A broker's last registration. A fenced broker leads no partition, and clients do not see it."""

    id: int
    epoch: int
    incarnation_id: Uuid
    listeners: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool = False
    directories: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] = ()
    is_migrating_zk_broker: bool = False

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((endpoint for endpoint in self.listeners if endpoint.name == listener), None)


class ControllerRegistration(NamedTuple):
    """A controller's last registration."""

    id: int
    incarnation_id: Uuid
    zk_migration_ready: bool
    listeners: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]


class PartitionRegistration(NamedTuple):
    """The replicas, ISR, leader and epochs of one partition; `directories` has the order of `replicas`."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    directories: tuple[Uuid, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED

    def directory(self, broker_id: int) -> Uuid | None:
        """Return the log directory of the broker's replica; None if the broker has no replica."""
        for replica, directory in zip(self.replicas, self.directories, strict=False):
            if replica == broker_id:
                return directory
        return UNASSIGNED_DIRECTORY if broker_id in self.replicas else None

    @property
    def reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)


REPLICA_LISTS = (
    "replicas",
    "directories",
    "isr",
    "removing_replicas",
    "adding_replicas",
    "eligible_leader_replicas",
    "last_known_elr",
)
"""The lists of a PartitionRegistration and of a PartitionChangeRecord, which have the same names."""


class TopicImage(NamedTuple):
    """A topic; `partitions[n]` is partition n."""

    id: Uuid
    name: str
    partitions: tuple[PartitionRegistration, ...]


class ConfigResource(NamedTuple):
    """The resource that a configuration belongs to; the empty broker name is the default of all brokers."""

    type: int
    name: str


class QuotaEntity(NamedTuple):
    """Pairs of entity type (user, client-id, ip) and name (None: the default entity), sorted by type."""

    parts: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class SecurityImage:
    """ACLs, credentials, tokens, quotas and the ZooKeeper migration state. No broker enforces them yet."""

    acls: Mapping[Uuid, Any] = field(default_factory=dict)
    scram_credentials: Mapping[tuple[str, int], Any] = field(default_factory=dict)
    delegation_tokens: Mapping[str, Any] = field(default_factory=dict)
    client_quotas: Mapping[QuotaEntity, Mapping[str, float]] = field(default_factory=dict)
    zk_migration_state: int | None = None


_NO_CONFIGS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """All metadata up to and including the record at `offset`, which the controller of `epoch` has written."""

    cluster_id: str = ""
    offset: int = -1
    epoch: int = 0
    levels: Levels = field(default_factory=Levels)
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    controllers: Mapping[int, ControllerRegistration] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[Uuid, TopicImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    security: SecurityImage = field(default_factory=SecurityImage)
    controller_id: int | None = None
    """The broker that clients send the controller's requests to; None if every broker forwards them."""

    def partition(self, topic: str | Uuid, index: int) -> PartitionRegistration | None:
        found = self.topics.get(topic) if isinstance(topic, str) else self.topics_by_id.get(topic)
        return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None

    def topic_configs(self, name: str) -> Mapping[str, str]:
        """Return the overrides of the topic."""
        return self.configs.get(ConfigResource(Resource.TOPIC, name), _NO_CONFIGS)

    def broker_configs(self, broker_id: int | None) -> Mapping[str, str]:
        """Return the dynamic configuration of one broker, or for None the default of all brokers."""
        name = "" if broker_id is None else str(broker_id)
        return self.configs.get(ConfigResource(Resource.BROKER, name), _NO_CONFIGS)

    def live_brokers(self) -> Iterator[BrokerRegistration]:
        """Return the brokers that are not fenced, by id."""
        return (self.brokers[key] for key in sorted(self.brokers) if not self.brokers[key].fenced)

    def is_active(self, broker_id: int) -> bool:
        """Return whether the broker is registered, not fenced and not shutting down: it may be in an ISR and lead."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown


class ReplicaAction(Enum):
    """An action on a replica that the controller orders in ZooKeeper mode, and that the image does not show."""

    STOP = "stop"
    """Stop leading and following until the next LeaderAndIsr request; keep the log."""
    DELETE = "delete"
    MARK_STRAY = "mark stray"
    """Rename the log: the replica is not assigned to this broker."""


@dataclass(frozen=True, slots=True)
class MetadataDelta:
    """The change from the image `before` to `image`. A topic that was deleted and created again has two ids here."""

    before: ClusterImage
    image: ClusterImage
    partitions: Mapping[Uuid, tuple[int, ...]]
    """Topic id to the sorted indexes of its new or changed partitions; the topics exist in `image`."""
    deleted_topics: Mapping[Uuid, TopicImage]
    brokers: frozenset[int]
    """The ids of brokers that were registered, changed or unregistered."""
    configs: frozenset[ConfigResource]
    features: bool = False
    producer_ids: bool = False
    security: bool = False
    """Whether `SecurityImage` has changed."""
    replica_actions: Mapping[tuple[str, int], ReplicaAction] = field(default_factory=dict)
    """Actions on replicas of the broker that the delta is for, by topic and index."""
    complete: bool = True
    """Whether the image has all replicas of the broker, so that any other log is a stray replica."""

    @staticmethod
    def between(before: ClusterImage, image: ClusterImage) -> MetadataDelta:
        """Return the delta between two images. Compares every part of both, unlike `replay`, which tracks changes."""
        partitions = {}
        for topic_id, topic in image.topics_by_id.items():
            old = before.topics_by_id.get(topic_id)
            known = () if old is None else old.partitions
            changed = tuple(
                index
                for index, partition in enumerate(topic.partitions)
                if index >= len(known) or known[index] != partition
            )
            if changed or old is None:
                partitions[topic_id] = changed
        deleted = {key: topic for key, topic in before.topics_by_id.items() if key not in image.topics_by_id}
        return MetadataDelta(
            before=before,
            image=image,
            partitions=partitions,
            deleted_topics=deleted,
            brokers=_differing(before.brokers, image.brokers),
            configs=_differing(before.configs, image.configs),
            features=before.levels != image.levels,
            producer_ids=before.next_producer_id != image.next_producer_id,
            security=before.security != image.security,
        )


def _differing(before: Mapping[K, V], after: Mapping[K, V]) -> frozenset[K]:
    return frozenset(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
