"""The table of the APIs that a broker serves. A new API is one module and one line here.

Owns the versions of each API, and the import of its module at the first request, so that a broker is ready sooner.
Dispatch, ApiVersions and the compatibility page read the table. Leaves the description of an API to its module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from odradek_broker.apis.api import Api
from odradek_wire.apis import APIS, ApiKey


class ApiRow(NamedTuple):
    """The module and the versions of an API: by default all versions of Kafka 3.9 and 4.3."""

    module: str
    min_version: int | None = None
    max_version: int | None = None
    inter_broker: bool = False
    """Whether only brokers send its requests: other listeners neither serve nor advertise it."""
    served: bool = True
    """Whether it has a handler of its own; otherwise every response is an error (`unserved`)."""


class Table(Mapping[ApiKey, Api[Any, Any]]):
    """APIs by key, in ascending order."""

    def __init__(self, rows: Mapping[ApiKey, ApiRow]) -> None:
        self._rows = {key: rows[key] for key in sorted(rows)}
        self._loaded: dict[ApiKey, Api[Any, Any]] = {}
        self.served = frozenset(key for key, row in rows.items() if row.served)
        """The keys of the APIs that have a handler of their own."""

    def __getitem__(self, key: ApiKey) -> Api[Any, Any]:
        api = self._loaded.get(key)
        if api is None:
            row = self._rows[key]
            module = import_module(f"odradek_broker.apis.{row.module}")
            api = self._loaded[key] = module.API if row.served else module.api(key)
        return api

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def is_inter_broker(self, key: ApiKey) -> bool:
        """Return whether only brokers send its requests."""
        return self._rows[key].inter_broker

    def versions(self, key: ApiKey) -> tuple[int, int]:
        """Return the lowest and the highest version."""
        row, (lowest, highest) = self._rows[key], APIS[key].versions
        return (
            lowest if row.min_version is None else row.min_version,
            highest if row.max_version is None else row.max_version,
        )

    def client_versions(self) -> dict[int, tuple[int, int]]:
        """Return the versions of the APIs for clients, by key."""
        return {key: self.versions(key) for key, row in self._rows.items() if not row.inter_broker}

    def inter_broker_only_versions(self) -> dict[int, tuple[int, int]]:
        """Return the versions of the APIs that only brokers use, by key."""
        return {key: self.versions(key) for key, row in self._rows.items() if row.inter_broker}

    def all_versions(self) -> dict[int, tuple[int, int]]:
        """Return the versions of all APIs, by key."""
        return {key: self.versions(key) for key in self._rows}

    def without(self, keys: Collection[int]) -> Table:
        """Return a table without these APIs."""
        return Table({key: row for key, row in self._rows.items() if key not in keys})

    def with_unserved(self, advertised: Mapping[int, tuple[int, int]]) -> Table:
        """Return a table that has also the other APIs of a release, as unserved. `advertised` has the versions of the
        release's APIs by key."""
        unserved = {
            ApiKey(key): ApiRow("unserved", lowest, highest, served=False)
            for key, (lowest, highest) in advertised.items()
            if key not in self._rows
        }
        return Table({**self._rows, **unserved})


TABLE = Table(
    {
        ApiKey.PRODUCE: ApiRow("produce"),
        ApiKey.FETCH: ApiRow("fetch"),
        ApiKey.LIST_OFFSETS: ApiRow("list_offsets"),
        ApiKey.METADATA: ApiRow("metadata"),
        ApiKey.LEADER_AND_ISR: ApiRow("leader_and_isr", inter_broker=True),
        ApiKey.STOP_REPLICA: ApiRow("stop_replica", inter_broker=True),
        ApiKey.UPDATE_METADATA: ApiRow("update_metadata", inter_broker=True),
        ApiKey.CONTROLLED_SHUTDOWN: ApiRow("controlled_shutdown", min_version=1, inter_broker=True),
        ApiKey.OFFSET_COMMIT: ApiRow("offset_commit"),
        ApiKey.OFFSET_FETCH: ApiRow("offset_fetch"),
        ApiKey.FIND_COORDINATOR: ApiRow("find_coordinator"),
        ApiKey.JOIN_GROUP: ApiRow("join_group"),
        ApiKey.HEARTBEAT: ApiRow("heartbeat"),
        ApiKey.LEAVE_GROUP: ApiRow("leave_group"),
        ApiKey.SYNC_GROUP: ApiRow("sync_group"),
        ApiKey.DESCRIBE_GROUPS: ApiRow("describe_groups"),
        ApiKey.LIST_GROUPS: ApiRow("list_groups"),
        ApiKey.API_VERSIONS: ApiRow("api_versions"),
        ApiKey.CREATE_TOPICS: ApiRow("create_topics"),
        ApiKey.DELETE_TOPICS: ApiRow("delete_topics"),
        ApiKey.DELETE_RECORDS: ApiRow("delete_records"),
        ApiKey.INIT_PRODUCER_ID: ApiRow("init_producer_id", max_version=5),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiRow("offset_for_leader_epoch"),
        ApiKey.ADD_PARTITIONS_TO_TXN: ApiRow("add_partitions_to_txn"),
        ApiKey.ADD_OFFSETS_TO_TXN: ApiRow("add_offsets_to_txn"),
        ApiKey.END_TXN: ApiRow("end_txn"),
        ApiKey.WRITE_TXN_MARKERS: ApiRow("write_txn_markers"),
        ApiKey.TXN_OFFSET_COMMIT: ApiRow("txn_offset_commit"),
        ApiKey.DESCRIBE_ACLS: ApiRow("describe_acls"),
        ApiKey.CREATE_ACLS: ApiRow("create_acls"),
        ApiKey.DELETE_ACLS: ApiRow("delete_acls"),
        ApiKey.DESCRIBE_CONFIGS: ApiRow("describe_configs"),
        ApiKey.ALTER_CONFIGS: ApiRow("alter_configs"),
        ApiKey.ALTER_REPLICA_LOG_DIRS: ApiRow("alter_replica_log_dirs"),
        ApiKey.DESCRIBE_LOG_DIRS: ApiRow("describe_log_dirs"),
        ApiKey.CREATE_PARTITIONS: ApiRow("create_partitions"),
        ApiKey.DELETE_GROUPS: ApiRow("delete_groups"),
        ApiKey.ELECT_LEADERS: ApiRow("elect_leaders"),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiRow("incremental_alter_configs"),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiRow("alter_partition_reassignments"),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiRow("list_partition_reassignments"),
        ApiKey.OFFSET_DELETE: ApiRow("offset_delete"),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiRow("describe_client_quotas"),
        ApiKey.DESCRIBE_QUORUM: ApiRow("describe_quorum"),
        ApiKey.ALTER_PARTITION: ApiRow("alter_partition", min_version=2, inter_broker=True),
        ApiKey.UPDATE_FEATURES: ApiRow("update_features"),
        ApiKey.DESCRIBE_CLUSTER: ApiRow("describe_cluster"),
        ApiKey.DESCRIBE_PRODUCERS: ApiRow("describe_producers"),
        ApiKey.DESCRIBE_TRANSACTIONS: ApiRow("describe_transactions"),
        ApiKey.LIST_TRANSACTIONS: ApiRow("list_transactions"),
        ApiKey.UNREGISTER_BROKER: ApiRow("unregister_broker"),
        ApiKey.ALLOCATE_PRODUCER_IDS: ApiRow("allocate_producer_ids", inter_broker=True),
        ApiKey.LIST_CONFIG_RESOURCES: ApiRow("list_config_resources"),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiRow("describe_topic_partitions"),
    }
)
