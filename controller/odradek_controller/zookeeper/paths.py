"""The paths of the znodes of a Kafka 3.9 cluster, below its chroot. Leaves the paths of ACLs to `acl_znodes`."""

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
"""The znodes that every broker creates without data when it starts, if they are missing."""

DEFAULT_ENTITY = "<default>"
"""The name of the default entity. Its values apply to each broker, user, client or address without its own values."""


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
    """Return the path of an entity. Entity paths are such as `topics/t`, `brokers/1` or `users/u/clients/c`."""
    return f"/config/{entity_path}"


def delete_topic(name: str) -> str:
    return f"{DELETE_TOPICS}/{name}"


def sanitized(name: str) -> str:
    """Return the name of the znode of a user, client id or address (Kafka's Sanitizer)."""
    return quote(name, safe="")


def desanitized(name: str) -> str:
    """Return the user, client id or address of a znode's name."""
    return unquote(name)
