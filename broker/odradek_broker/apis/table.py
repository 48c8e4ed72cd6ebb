"""The one table of APIs served by the broker. A new API is one module and one line here.

Dispatch, ApiVersions, authorization and the compatibility page are read from it. Modules of the groups and of the admin
APIs stand in tables of their own next to them, so that the list stays readable.
"""

from __future__ import annotations

from typing import Any

from odradek_broker.api import Api
from odradek_broker.apis import api_versions
from odradek_wire.apis import ApiKey

TABLE: dict[ApiKey, Api[Any, Any]] = {
    ApiKey.API_VERSIONS: api_versions.API,
}
