"""The table of commands: the function that decides the requests of each API.

A command is a pure function of image, request and context that returns records and the response. Its module is imported
when the first such request arrives, so that a start loads only what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

from odradek_wire.apis import ApiKey
from odradek_wire.message import Message

from ..image import ClusterImage
from .context import CommandContext

Decision = tuple[Sequence[Message], Any]
"""The records to append, and the response; its class is the response class of the request's API."""
Command = Callable[[ClusterImage, Any, CommandContext], Decision]


class Row(NamedTuple):
    """A command: its module in this package, its function, and what the controller does besides calling it."""

    module: str
    function: str
    changes_configs: bool = False
    """Whether the controller then elects leaders of partitions without a leader, because the request may have enabled
    `unclean.leader.election.enable`."""
    read_only: bool = False
    """Whether the command never returns records. The controller then does not wait for a change in progress."""


COMMANDS: Mapping[int, Row] = {
    ApiKey.CREATE_TOPICS: Row("create_topics", "create_topics"),
    ApiKey.DELETE_TOPICS: Row("delete_topics", "delete_topics"),
    ApiKey.ALTER_CONFIGS: Row("alter_configs", "alter_configs", changes_configs=True),
    ApiKey.CREATE_PARTITIONS: Row("create_partitions", "create_partitions"),
    ApiKey.ELECT_LEADERS: Row("elect_leaders", "elect_leaders"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Row("alter_configs", "incremental_alter_configs", changes_configs=True),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Row("reassign", "alter_reassignments"),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Row("reassign", "list_reassignments", read_only=True),
    ApiKey.DESCRIBE_QUORUM: Row("describe_quorum", "describe_quorum", read_only=True),
    ApiKey.ALTER_PARTITION: Row("alter_partition", "alter_partition"),
    ApiKey.UPDATE_FEATURES: Row("features", "update_features"),
    ApiKey.BROKER_REGISTRATION: Row("brokers", "register_broker"),
    ApiKey.BROKER_HEARTBEAT: Row("brokers", "broker_heartbeat"),
    ApiKey.UNREGISTER_BROKER: Row("brokers", "unregister_broker"),
    ApiKey.ALLOCATE_PRODUCER_IDS: Row("producer_ids", "allocate_producer_ids"),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Row("assign_directories", "assign_replicas_to_dirs"),
}


def command(api_key: int) -> Command:
    """Return the command of an API. Raises KeyError for an API that the controller does not serve."""
    row = COMMANDS[api_key]
    function: Command = getattr(import_module(f"{__package__}.{row.module}"), row.function)
    return function
