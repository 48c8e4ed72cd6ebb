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


class Row(NamedTuple):
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

    def __init__(self, rows: Mapping[ApiKey, Row]) -> None:
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
            ApiKey(key): Row("unserved", lowest, highest, served=False)
            for key, (lowest, highest) in advertised.items()
            if key not in self._rows
        }
        return Table({**self._rows, **unserved})


TABLE = Table(
    {
        ApiKey.PRODUCE: Row("produce"),
        ApiKey.FETCH: Row("fetch"),
        ApiKey.LIST_OFFSETS: Row("list_offsets"),
        ApiKey.METADATA: Row("metadata"),
        ApiKey.LEADER_AND_ISR: Row("leader_and_isr", inter_broker=True),
        ApiKey.STOP_REPLICA: Row("stop_replica", inter_broker=True),
        ApiKey.UPDATE_METADATA: Row("update_metadata", inter_broker=True),
        ApiKey.CONTROLLED_SHUTDOWN: Row("controlled_shutdown", min_version=1, inter_broker=True),
        ApiKey.OFFSET_COMMIT: Row("offset_commit"),
        ApiKey.OFFSET_FETCH: Row("offset_fetch"),
        ApiKey.FIND_COORDINATOR: Row("find_coordinator"),
        ApiKey.JOIN_GROUP: Row("join_group"),
        ApiKey.HEARTBEAT: Row("heartbeat"),
        ApiKey.LEAVE_GROUP: Row("leave_group"),
        ApiKey.SYNC_GROUP: Row("sync_group"),
        ApiKey.DESCRIBE_GROUPS: Row("describe_groups"),
        ApiKey.LIST_GROUPS: Row("list_groups"),
        ApiKey.API_VERSIONS: Row("api_versions"),
        ApiKey.CREATE_TOPICS: Row("create_topics"),
        ApiKey.DELETE_TOPICS: Row("delete_topics"),
        ApiKey.DELETE_RECORDS: Row("delete_records"),
        ApiKey.INIT_PRODUCER_ID: Row("init_producer_id", max_version=5),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: Row("offset_for_leader_epoch"),
        ApiKey.ADD_PARTITIONS_TO_TXN: Row("add_partitions_to_txn"),
        ApiKey.ADD_OFFSETS_TO_TXN: Row("add_offsets_to_txn"),
        ApiKey.END_TXN: Row("end_txn"),
        ApiKey.WRITE_TXN_MARKERS: Row("write_txn_markers"),
        ApiKey.TXN_OFFSET_COMMIT: Row("txn_offset_commit"),
        ApiKey.DESCRIBE_ACLS: Row("describe_acls"),
        ApiKey.CREATE_ACLS: Row("create_acls"),
        ApiKey.DELETE_ACLS: Row("delete_acls"),
        ApiKey.DESCRIBE_CONFIGS: Row("describe_configs"),
        ApiKey.ALTER_CONFIGS: Row("alter_configs"),
        ApiKey.ALTER_REPLICA_LOG_DIRS: Row("alter_replica_log_dirs"),
        ApiKey.DESCRIBE_LOG_DIRS: Row("describe_log_dirs"),
        ApiKey.CREATE_PARTITIONS: Row("create_partitions"),
        ApiKey.DELETE_GROUPS: Row("delete_groups"),
        ApiKey.ELECT_LEADERS: Row("elect_leaders"),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: Row("incremental_alter_configs"),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Row("alter_partition_reassignments"),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Row("list_partition_reassignments"),
        ApiKey.OFFSET_DELETE: Row("offset_delete"),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: Row("describe_client_quotas"),
        ApiKey.DESCRIBE_QUORUM: Row("describe_quorum"),
        ApiKey.ALTER_PARTITION: Row("alter_partition", min_version=2, inter_broker=True),
        ApiKey.UPDATE_FEATURES: Row("update_features"),
        ApiKey.DESCRIBE_CLUSTER: Row("describe_cluster"),
        ApiKey.DESCRIBE_PRODUCERS: Row("describe_producers"),
        ApiKey.DESCRIBE_TRANSACTIONS: Row("describe_transactions"),
        ApiKey.LIST_TRANSACTIONS: Row("list_transactions"),
        ApiKey.UNREGISTER_BROKER: Row("unregister_broker"),
        ApiKey.ALLOCATE_PRODUCER_IDS: Row("allocate_producer_ids", inter_broker=True),
        ApiKey.LIST_CONFIG_RESOURCES: Row("list_config_resources"),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Row("describe_topic_partitions"),
    }
)
