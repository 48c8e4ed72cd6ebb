"""A connection to one broker, and the ids that this broker has generated."""

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from compat_tests.oracle import schema
from compat_tests.oracle.schema import Body

_SECONDS = 30.0
CLIENT_ID = "oracle"


class Closed(Exception):
    """The broker closed the connection instead of sending a response."""


class Var:
    """A variable for a value that each broker has generated. The test has remembered the values under this name."""

    def __init__(self, name: str) -> None:
        self.name = name


class Peer:
    """A connection to one broker. `known` has the values that the test has remembered for this broker, by name."""

    def __init__(self, name: str, servers: str, client_id: str = CLIENT_ID) -> None:
        self.name = name
        self.client_id = client_id
        self.host, _, port = servers.rpartition(":")
        self.port = int(port)
        self.known: dict[str, Any] = {}
        self._correlation_id = 0
        self._socket = self._connect()

    def remember(self, name: str, value: Any) -> None:
        """Remember a value: requests replace Var(name) by it, and comparisons replace it by <name>."""
        self.known[name] = value

    def remember_producer(self, producer_id: int) -> None:
        """Remember a new producer id: Var("producer 1") is the first one that the broker generated, and so on."""
        if producer_id >= 0 and producer_id not in self.producers.values():
            self.remember(f"producer {len(self.producers) + 1}", producer_id)

    @property
    def producers(self) -> dict[str, int]:
        """Producer ids by their names."""
        return {name: value for name, value in self.known.items() if name.startswith("producer ")}

    def ask(self, api: str, version: int, body: Body) -> Body:
        """Send a request and return its response."""
        release = schema.release_for(api, version)
        response = self.ask_bytes(api, version, schema.encode(f"{api}Request", version, self._own(body), release))
        return schema.decode(f"{api}Response", version, response, release)

    def send_only(self, api: str, version: int, body: Body) -> None:
        """Send a request that has no response (Produce with acks 0)."""
        release = schema.release_for(api, version)
        self._send(api, version, schema.encode(f"{api}Request", version, self._own(body), release))

    def ask_bytes(self, api: str, version: int, body: bytes) -> bytes:
        """Send an encoded body and return the response's body, without the header."""
        release = schema.release_for(api, version)
        self._send(api, version, body)
        frame = self.receive()
        (correlation_id,) = struct.unpack_from(">i", frame)
        assert correlation_id == self._correlation_id, "an answer to something else"
        # ApiVersions: header 0 in every version (KIP-511).
        flexible = schema.is_flexible(f"{api}Response", version, release) and api != "ApiVersions"
        if flexible:
            assert frame[4] == 0, "a tagged field in the response header"
        return frame[5 if flexible else 4 :]

    def send_frame(self, frame: bytes) -> None:
        """Send any bytes, with their length before them."""
        self.send_raw(struct.pack(">i", len(frame)) + frame)

    def send_raw(self, data: bytes) -> None:
        """Send any bytes."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise Closed(self.name) from error

    def receive(self) -> bytes:
        """Return the next frame without its length. Raises Closed."""
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def is_closed(self) -> bool:
        """Return whether the broker closes the connection before it sends another frame."""
        try:
            self.receive()
        except Closed:
            return True
        return False

    def reconnect(self) -> None:
        """Open a new connection, after Closed or as another client."""
        self._socket.close()
        self._socket = self._connect()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _send(self, api: str, version: int, body: bytes) -> None:
        self._correlation_id += 1
        release = schema.release_for(api, version)
        flexible = schema.is_flexible(f"{api}Request", version, release)
        key, client_id = schema.api_key(api), self.client_id.encode()
        if api == "ControlledShutdown" and version == 0:
            header = struct.pack(">hhi", key, version, self._correlation_id)
        else:
            header = struct.pack(">hhih", key, version, self._correlation_id, len(client_id)) + client_id
        self.send_frame(header + (b"\x00" if flexible else b"") + body)

    def _own(self, value: Any) -> Any:
        if isinstance(value, Var):
            return self.known[value.name]
        if callable(value):
            return value(self)
        if isinstance(value, dict):
            return {name: self._own(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._own(each) for each in value]
        return value

    def _connect(self) -> socket.socket:
        connection = socket.create_connection((self.host, self.port), timeout=_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _exactly(self, count: int) -> bytes:
        received = bytearray()
        while len(received) < count:
            try:
                piece = self._socket.recv(count - len(received))
            except ConnectionError as error:
                raise Closed(self.name) from error
            if not piece:
                raise Closed(self.name)
            received += piece
        return bytes(received)


def topic_on(name: str, replicas: Sequence[Sequence[int]], configs: Mapping[str, str]) -> Body:
    """Return a topic of a CreateTopics request with these replicas."""
    return {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": index, "broker_ids": [*each]} for index, each in enumerate(replicas)],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }
