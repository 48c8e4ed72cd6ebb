"""A blocking connection to one broker: sends a request and waits for its response, in the newest common version."""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, TypeVar

from odradek.exceptions import ClientError
from odradek_wire.apis import APIS, response_header_version
from odradek_wire.codec import decode
from odradek_wire.errors import DecodeError
from odradek_wire.frames import encode_request
from odradek_wire.message import Message
from odradek_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek_wire.messages.response_header import ResponseHeader

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

R = TypeVar("R", bound=Message)

_LENGTH = struct.Struct(">i")
_CORRELATION_ID_SIZE = 4
# Every broker serves version 0, so the client needs no second request with a lower version.
_HANDSHAKE_VERSION = 0
_RESPONSE_BYTES_MAX = 1 << 30


class BlockingConnection:
    """A connection to a broker whose API versions are known. All methods raise ClientError."""

    def __init__(self, host: str, port: int, *, timeout_s: float, client_id: str = "odradek") -> None:
        self.address = f"{host}:{port}"
        self._client_id = client_id
        self._correlation_id = 0
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise ClientError(f"no broker responds at {self.address}: {error.strerror or error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._versions: dict[int, tuple[int, int]] = {}
        response = self._exchange(ApiVersionsRequest(), ApiVersionsResponse, _HANDSHAKE_VERSION)
        self._versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def version(self, api_key: int) -> int:
        """Return the newest version of an API that both sides have."""
        api = APIS[api_key]
        theirs = self._versions.get(api_key)
        if theirs is None:
            raise ClientError(f"the broker at {self.address} does not serve {api.name}")
        version = min(api.versions[1], theirs[1])
        if version < max(api.versions[0], theirs[0]):
            raise ClientError(f"the broker at {self.address} serves no version of {api.name} that Odradek has")
        return version

    def call(self, request: Message, response: type[R], *, timeout_s: float | None = None) -> R:
        """Send `request` and return its response. `timeout_s` replaces the connection's timeout for this call."""
        if timeout_s is None:
            return self._exchange(request, response, self.version(request.API_KEY))
        usual = self._socket.gettimeout()
        self._socket.settimeout(timeout_s)
        try:
            return self._exchange(request, response, self.version(request.API_KEY))
        finally:
            self._socket.settimeout(usual)

    def _exchange(self, request: Message, response: type[R], version: int) -> R:
        self._correlation_id += 1
        frame = encode_request(request, version, self._correlation_id, self._client_id)
        try:
            self._socket.sendall(_LENGTH.pack(len(frame)) + frame)
            (size,) = _LENGTH.unpack(self._receive(_LENGTH.size))
            if not _CORRELATION_ID_SIZE <= size <= _RESPONSE_BYTES_MAX:
                raise ClientError(
                    f"{self.address} does not speak Kafka's protocol: a response must have {_CORRELATION_ID_SIZE} to"
                    f" {_RESPONSE_BYTES_MAX} bytes, got {size}"
                )
            response_bytes = self._receive(size)
        except TimeoutError as error:
            limit = self._socket.gettimeout() or 0
            raise ClientError(f"the broker at {self.address} did not respond within {limit:g} s") from error
        except OSError as error:
            raise ClientError(f"lost the connection to {self.address}: {error.strerror or error}") from error
        received_id = int.from_bytes(response_bytes[:_CORRELATION_ID_SIZE], "big")
        if received_id != self._correlation_id:
            raise ClientError(
                f"{self.address} does not speak Kafka's protocol: correlation id {self._correlation_id} expected,"
                f" {received_id} received"
            )
        try:
            body = response_bytes[self._header_size(request.API_KEY, version, response_bytes) :]
            return decode(response, version, body)
        except DecodeError as error:
            raise ClientError(f"the broker at {self.address} sent a malformed response: {error}") from error

    @staticmethod
    def _header_size(api_key: int, version: int, response_bytes: memoryview) -> int:
        if response_header_version(api_key, version) == 0:
            return _CORRELATION_ID_SIZE
        # The tagged fields of the response header: Kafka has defined none, so their number must be 0.
        if response_bytes[_CORRELATION_ID_SIZE] != 0:
            raise DecodeError(ResponseHeader.__name__, 1, "", _CORRELATION_ID_SIZE, "tagged fields")
        return _CORRELATION_ID_SIZE + 1

    def _receive(self, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        at = 0
        while at < size:
            count = self._socket.recv_into(data[at:])
            if count == 0:
                raise ClientError(f"the broker at {self.address} closed the connection")
            at += count
        return data
