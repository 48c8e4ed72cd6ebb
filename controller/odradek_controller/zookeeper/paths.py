"""Where a Kafka 3.9 cluster keeps what, below its chroot."""

from __future__ import annotations

from urllib.parse import quote, unquote

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
FEATURE = "/feature"
PRODUCER_IDS = "/latest_producer_id_block"

BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"

CONFIG_TOPICS = "/config/topics"
CONFIG_BROKERS = "/config/brokers"
CONFIG_CLIENTS = "/config/clients"
CONFIG_USERS = "/config/users"
CONFIG_IPS = "/config/ips"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE = CONFIG_CHANGES + "/config_change_"

DELETE_TOPICS = "/admin/delete_topics"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"

ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE = ISR_CHANGES + "/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT = LOG_DIR_EVENTS + "/log_dir_event_"

CONSUMERS = "/consumers"

PERSISTENT = (
    CONSUMERS,
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_IDS,
    LOG_DIR_EVENTS,
    CONFIG_TOPICS,
    CONFIG_CLIENTS,
    CONFIG_USERS,
    CONFIG_BROKERS,
    CONFIG_IPS,
)
"""What every broker sees to when it starts: that these are there, without data."""

DEFAULT_ENTITY = "<default>"
"""The name of what holds for every broker, user, client or address that has nothing of its own."""


def broker(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}"


def state(name: str, index: int) -> str:
    return f"{TOPICS}/{name}/partitions/{index}/state"


def config(entity_path: str) -> str:
    """Of `topics/t`, `brokers/1`, `users/u/clients/c`: what a change notification names."""
    return f"/config/{entity_path}"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def sanitized(name: str) -> str:
    """A user, client id or address as the name of a node (Kafka's Sanitizer); everything else is named as it is."""
    return quote(name, safe="")


def desanitized(name: str) -> str:
    return unquote(name)
