"""The one table of APIs served by the broker. A new API is one module and one line here.

Dispatch, ApiVersions, authorization and the compatibility page are read from it. Modules of the groups and of the admin
APIs stand in tables of their own next to them, so that the list stays readable.
"""

from __future__ import annotations

from typing import Any

from odradek_broker.api import Api
from odradek_broker.apis import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    update_features,
)
from odradek_wire.apis import ApiKey

TABLE: dict[ApiKey, Api[Any, Any]] = {
    ApiKey.PRODUCE: produce.API,
    ApiKey.FETCH: fetch.API,
    ApiKey.LIST_OFFSETS: list_offsets.API,
    ApiKey.METADATA: metadata.API,
    ApiKey.OFFSET_COMMIT: offset_commit.API,
    ApiKey.OFFSET_FETCH: offset_fetch.API,
    ApiKey.FIND_COORDINATOR: find_coordinator.API,
    ApiKey.JOIN_GROUP: join_group.API,
    ApiKey.HEARTBEAT: heartbeat.API,
    ApiKey.LEAVE_GROUP: leave_group.API,
    ApiKey.SYNC_GROUP: sync_group.API,
    ApiKey.DESCRIBE_GROUPS: describe_groups.API,
    ApiKey.LIST_GROUPS: list_groups.API,
    ApiKey.API_VERSIONS: api_versions.API,
    ApiKey.CREATE_TOPICS: create_topics.API,
    ApiKey.DELETE_TOPICS: delete_topics.API,
    ApiKey.DELETE_RECORDS: delete_records.API,
    ApiKey.INIT_PRODUCER_ID: init_producer_id.API,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.API,
    ApiKey.DESCRIBE_ACLS: describe_acls.API,
    ApiKey.DESCRIBE_CONFIGS: describe_configs.API,
    ApiKey.ALTER_CONFIGS: alter_configs.API,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.API,
    ApiKey.CREATE_PARTITIONS: create_partitions.API,
    ApiKey.DELETE_GROUPS: delete_groups.API,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs.API,
    ApiKey.OFFSET_DELETE: offset_delete.API,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas.API,
    ApiKey.DESCRIBE_QUORUM: describe_quorum.API,
    ApiKey.UPDATE_FEATURES: update_features.API,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster.API,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.API,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources.API,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.API,
}
