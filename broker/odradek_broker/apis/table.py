"""The one table of APIs served by the broker. A new API is one module and one line here.

Dispatch, ApiVersions, authorization and the compatibility page are read from it. Modules of the groups and of the admin
APIs stand in tables of their own next to them, so that the list stays readable.
"""

from __future__ import annotations

from typing import Any

from odradek_broker.api import Api
from odradek_broker.apis import (
    api_versions,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from odradek_wire.apis import ApiKey

TABLE: dict[ApiKey, Api[Any, Any]] = {
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
    ApiKey.DELETE_GROUPS: delete_groups.API,
    ApiKey.OFFSET_DELETE: offset_delete.API,
}
