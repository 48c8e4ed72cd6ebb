"""The one table of APIs served by the broker. A new API is one module and one line here.

Dispatch, ApiVersions, authorization and the compatibility page are read from it. Modules of the groups and of the admin
APIs stand in tables of their own next to them, so that the list stays readable.
"""

from __future__ import annotations

from typing import Any

from odradek_broker.api import Api
from odradek_broker.apis import (
    api_versions,
    create_topics,
    delete_groups,
    delete_records,
    describe_cluster,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
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
    ApiKey.DELETE_RECORDS: delete_records.API,
    ApiKey.INIT_PRODUCER_ID: init_producer_id.API,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.API,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs.API,
    ApiKey.DELETE_GROUPS: delete_groups.API,
    ApiKey.OFFSET_DELETE: offset_delete.API,
    ApiKey.DESCRIBE_CLUSTER: describe_cluster.API,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers.API,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.API,
}
