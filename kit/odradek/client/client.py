"""A blocking client that finds the broker for a request: any broker, a leader, a coordinator or the controller."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from odradek.client.blocking_connection import BlockingConnection
from odradek.exceptions import ClientError, KafkaError
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from odradek_wire.messages.metadata import MetadataRequest, MetadataResponse

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

R = TypeVar("R", bound=Message)
T = TypeVar("T")

DEFAULT_BOOTSTRAP = "localhost:9092"
_DEFAULT_PORT = 9092
_GROUP = 0
# From this version of FindCoordinator on, a request has several keys (KIP-699).
_MULTI_KEY_VERSION = 4
_COORDINATOR_NOT_READY = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
_RETRY_BACKOFF_S = 0.1


def parse_address(address: str) -> tuple[str, int]:
    """Parse `host`, `host:port` or `[v6]:port` into host and port. Raises ClientError for anything else."""
    text = address.strip()
    host, separator, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not separator:
        host, port = text, str(_DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ClientError(f"{address!r} is not an address like localhost:9092")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Format an address so that `parse_address` reads it."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Client:
    """Connections to the brokers of one cluster, opened when they are first needed. Threads must not share a client.

    All methods raise ClientError when a broker does not respond, and KafkaError for an error code.
    """

    def __init__(self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, *, timeout_s: float = 10.0) -> None:
        self._bootstrap = [parse_address(address) for address in bootstrap_servers.split(",") if address.strip()]
        if not self._bootstrap:
            raise ClientError("the bootstrap address is empty: give one like localhost:9092")
        self._timeout_s = timeout_s
        self._bootstrap_connection: BlockingConnection | None = None
        self._by_node: dict[int, BlockingConnection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._by_node.values():
            connection.close()
        if self._bootstrap_connection is not None:
            self._bootstrap_connection.close()
        self._by_node.clear()
        self._bootstrap_connection = None

    def call(self, request: Message, response: type[R], *, timeout_s: float | None = None) -> R:
        """Send a request to any broker of the cluster."""
        return self._any_connection().call(request, response, timeout_s=timeout_s)

    def call_broker(self, node_id: int, request: Message, response: type[R]) -> R:
        """Send a request to one broker."""
        return self._connection_to(node_id).call(request, response)

    def call_controller(self, request: Message, response: type[R]) -> R:
        """Send a request to the controller that Metadata names: other brokers over ZooKeeper do not serve it."""
        controller = self.metadata([]).controller_id
        return self.call(request, response) if controller < 0 else self.call_broker(controller, request, response)

    def call_group(self, group_id: str, request: Message, response: type[R], error_of: Callable[[R], int]) -> R:
        """Send a request to the coordinator of a group; retry while `error_of` returns an error of an unready one."""

        def send() -> tuple[int, R]:
            found = self._connection_to(self.coordinator(group_id)).call(request, response)
            return error_of(found), found

        return self._until_ready(send)

    def version(self, api_key: int) -> int:
        """Return the newest version of an API that both sides have."""
        return self._any_connection().version(api_key)

    def metadata(self, topics: list[str] | None = None) -> MetadataResponse:
        """Return the metadata of all topics, or of those named; never creates a topic."""
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        return self.call(MetadataRequest(wanted, allow_auto_topic_creation=False), MetadataResponse)

    def topic(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        """Return one topic with its partitions sorted. Raises KafkaError if it does not exist."""
        (topic,) = self.metadata([name]).topics
        if topic.error_code != ErrorCode.NONE:
            raise KafkaError(topic.error_code, f"topic {name!r}")
        topic.partitions.sort(key=lambda partition: partition.partition_index)
        return topic

    def node_ids(self) -> list[int]:
        return sorted(broker.node_id for broker in self.metadata([]).brokers)

    def coordinator(self, group_id: str) -> int:
        """Return the id of the broker that coordinates a group."""
        has_keys = self.version(FindCoordinatorRequest.API_KEY) >= _MULTI_KEY_VERSION
        request = (
            FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=[group_id])
            if has_keys
            else FindCoordinatorRequest(key=group_id, key_type=_GROUP)
        )

        def send() -> tuple[int, FindCoordinatorResponse | FindCoordinatorResponse.Coordinator]:
            response = self.call(request, FindCoordinatorResponse)
            found = response.coordinators[0] if has_keys else response
            return found.error_code, found

        found = self._until_ready(send)
        if found.error_code != ErrorCode.NONE:
            raise KafkaError(found.error_code, f"group {group_id!r}", found.error_message)
        return found.node_id

    def _until_ready(self, send: Callable[[], tuple[int, T]]) -> T:
        """Call `send` again while the coordinator is not available or is loading, as every Kafka client does."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            error_code, response = send()
            if error_code not in _COORDINATOR_NOT_READY or time.monotonic() > deadline:
                return response
            time.sleep(_RETRY_BACKOFF_S)

    def _any_connection(self) -> BlockingConnection:
        if self._bootstrap_connection is None:
            failures = []
            for host, port in self._bootstrap:
                try:
                    self._bootstrap_connection = BlockingConnection(host, port, timeout_s=self._timeout_s)
                    break
                except ClientError as error:
                    failures.append(str(error))
            else:
                raise ClientError("; ".join(failures))
        return self._bootstrap_connection

    def _connection_to(self, node_id: int) -> BlockingConnection:
        if node_id not in self._by_node:
            for broker in self.metadata([]).brokers:
                if broker.node_id == node_id:
                    self._by_node[node_id] = BlockingConnection(broker.host, broker.port, timeout_s=self._timeout_s)
                    break
            else:
                raise ClientError(f"broker {node_id} is not running")
        return self._by_node[node_id]
