"""Routes: from API key and version to decoder, handler and encoder, compiled at first use.

Owns the routes of a server's listeners, by the first four bytes of a request: the hot path finds a route in one step.
Leaves the table of APIs to `apis.table`.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import ELEMENTS
from odradek_broker.apis.table import Table
from odradek_wire.apis import ApiKey
from odradek_wire.codec import Part, decode_prefix, decoder, encoder, limited_decoder
from odradek_wire.errors import DecodeError, ErrorCode

UNDIVIDED_DIVISOR = 20
"""The divisor of `odradek.request.elements.max` for an API whose requests are not handled in slices."""

Handle = Callable[[Context, Any], Any | Awaitable[Any] | None]


def elements_max(api: Api[Any, Any], setting: int) -> int:
    """Return how many elements a request may have when `odradek.request.elements.max` is `setting`."""
    divisor = api.elements_divisor or (UNDIVIDED_DIVISOR if api.slices is None else 1)
    return max(setting // divisor, 1)


class Route:
    """One API in one version."""

    __slots__ = (
        "api",
        "decode",
        "encode",
        "fast_path",
        "flexible",
        "handle",
        "has_throttle_time",
        "key",
        "requests",
        "response_class",
        "response_has_tags",
        "sends_files",
        "slice_elements",
        "unlimited_decode_bytes_max",
        "version",
    )

    def __init__(self, key: ApiKey, version: int, api: Api[Any, Any], *, limited: bool = True) -> None:
        """If `limited`, requests have a limit of elements, which are counted while a large request is decoded."""
        self.key = key
        self.requests = 0
        self.version = version
        self.api = api
        self.handle: Handle = api.handle
        self.decode: Callable[..., Any] = decoder(api.request, version)
        self.encode: Callable[[Any], list[Part]] = encoder(api.response, version)
        self.response_class = api.response
        self.flexible: bool = version >= api.request.FLEXIBLE_FROM
        # ApiVersions has header v0 even in flexible versions: the client must read its response before it knows the
        # broker's versions (KIP-511).
        self.response_has_tags: bool = self.flexible and key != ApiKey.API_VERSIONS
        # Only responses to Fetch have slices of log files; all others are bytes.
        self.sends_files = key == ApiKey.FETCH
        self.fast_path = None if api.fast_path is None else api.fast_path(version)
        self.has_throttle_time = "throttle_time_ms" in api.response.__slots__
        self.slice_elements = ELEMENTS if api.slices is None else api.slices.elements
        # Below this size the elements need not be counted: nearly every element takes at least four bytes.
        self.unlimited_decode_bytes_max = 4 * self.slice_elements if limited else sys.maxsize

    def decode_limited(self, frame: Any, position: int, limit: int) -> tuple[Any, int]:
        """Return the request and its number of elements, which is `limit` for a request with trailing bytes. Raises
        TooManyElementsError above `limit`, and DecodeError, IndexError or ValueError for a request that cannot be
        read."""
        try:
            return limited_decoder(self.api.request, self.version)(frame, position, limit)
        except DecodeError:
            return decode_prefix(self.api.request, self.version, frame, position, limit)[0], limit

    def decode_with_trailing_bytes(self, frame: Any, position: int) -> Any:
        """Decode a request with bytes after its end, which `decode` refuses and Kafka ignores. librdkafka sends three
        such bytes after a Metadata v13 for all topics. Raises DecodeError if the request itself cannot be read."""
        return decode_prefix(self.api.request, self.version, frame, position)[0]

    def failure(self, ctx: Context, request: Any, error: ErrorCode) -> Any | None:
        """Return the response for an error of the whole request; None if the response has no field for it."""
        if self.api.error_response is not None:
            return self.api.error_response(ctx, request, error)
        if "error_code" not in self.response_class.__slots__:
            return None
        response = self.response_class()
        response.error_code = error
        return response


class Routes:
    """The routes of one or several listeners. `compiled` has those that requests have used, by the first four bytes of
    a request: API key and version."""

    __slots__ = ("compiled", "inter_broker", "table", "unsupported_version_body")

    def __init__(self, table: Table, unsupported_version_body: bytes, *, inter_broker: bool = False) -> None:
        """`unsupported_version_body` is the body of the response to an ApiVersions request in an unknown version. With
        `inter_broker` the listeners also serve the APIs that only brokers use."""
        self.table = table
        self.inter_broker = inter_broker
        self.unsupported_version_body = unsupported_version_body
        self.compiled: dict[int, Route] = {}

    def versions(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and the highest version of each API that is served, by key."""
        return self.table.all_versions() if self.inter_broker else self.table.client_versions()

    def get(self, key_and_version: int) -> Route | None:
        """Return the route, compiled if necessary; None for an API or a version that is not served."""
        route = self.compiled.get(key_and_version)
        return self._compile(key_and_version) if route is None else route

    def _compile(self, key_and_version: int) -> Route | None:
        number, version = key_and_version >> 16, key_and_version & 0xFFFF
        try:
            key = ApiKey(number)
        except ValueError:
            return None
        lowest, highest = self.versions().get(key, (0, -1))
        if not lowest <= version <= highest:
            return None
        # The requests of a controller to a broker name more partitions than any client's.
        limited = not self.table.is_inter_broker(key)
        route = self.compiled[key_and_version] = Route(key, version, self.table[key], limited=limited)
        return route
