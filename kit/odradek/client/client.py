"""Which broker to ask: bootstrap, partition leaders and group coordinators."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from odradek.client.connection import Connection
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
_FIRST_BATCHED_FIND_COORDINATOR = 4
_COORDINATOR_NOT_READY = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
)
_RETRY_BACKOFF_S = 0.1


def parse_address(address: str) -> tuple[str, int]:
    """`host`, `host:port`, `[v6]:port` → host and port; `ClientError` for anything else."""
    text = address.strip()
    host, separator, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not separator:
        host, port = text, str(_DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ClientError(f"{address!r} is not an address like localhost:9092")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """What `parse_address` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Client:
    """Connections to the brokers of one cluster, opened when they are needed. Not safe to share between threads."""

    def __init__(self, bootstrap_servers: str = DEFAULT_BOOTSTRAP, *, timeout_s: float = 10.0) -> None:
        self._bootstrap = [parse_address(address) for address in bootstrap_servers.split(",") if address.strip()]
        if not self._bootstrap:
            raise ClientError("no bootstrap address was given")
        self._timeout_s = timeout_s
        self._first: Connection | None = None
        self._by_node: dict[int, Connection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for connection in [*self._by_node.values(), *([self._first] if self._first else [])]:
            connection.close()
        self._by_node.clear()
        self._first = None

    def call(self, request: Message, response: type[R], *, timeout_s: float | None = None) -> R:
        """Ask any broker of the cluster."""
        return self._any().call(request, response, timeout_s=timeout_s)

    def call_node(self, node_id: int, request: Message, response: type[R]) -> R:
        """Ask one broker."""
        return self._node(node_id).call(request, response)

    def call_controller(self, request: Message, response: type[R]) -> R:
        """Ask the broker that Metadata names as the controller: over ZooKeeper no other changes the cluster."""
        controller = self.metadata([]).controller_id
        return self.call(request, response) if controller < 0 else self.call_node(controller, request, response)

    def call_group(self, group_id: str, request: Message, response: type[R], error_of: Callable[[R], int]) -> R:
        """Ask the coordinator of a group; `error_of` finds the error code that says it is not ready yet."""

        def ask() -> tuple[int, R]:
            answer = self._node(self.coordinator(group_id)).call(request, response)
            return error_of(answer), answer

        return self._until_ready(ask)

    def version(self, api_key: int) -> int:
        """The newest version of an API that both sides know."""
        return self._any().version(api_key)

    def metadata(self, topics: list[str] | None = None) -> MetadataResponse:
        """All topics, or those named; never creates one."""
        wanted = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
        return self.call(MetadataRequest(wanted, allow_auto_topic_creation=False), MetadataResponse)

    def topic(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        """One topic, its partitions in order; `KafkaError` if there is no such topic."""
        (topic,) = self.metadata([name]).topics
        if topic.error_code != ErrorCode.NONE:
            raise KafkaError(topic.error_code, f"topic {name!r}")
        topic.partitions.sort(key=lambda partition: partition.partition_index)
        return topic

    def node_ids(self) -> list[int]:
        return sorted(broker.node_id for broker in self.metadata([]).brokers)

    def coordinator(self, group_id: str) -> int:
        """The broker that coordinates a group."""
        batched = self.version(FindCoordinatorRequest.API_KEY) >= _FIRST_BATCHED_FIND_COORDINATOR
        request = (
            FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=[group_id])
            if batched
            else FindCoordinatorRequest(key=group_id, key_type=_GROUP)
        )

        def ask() -> tuple[int, FindCoordinatorResponse | FindCoordinatorResponse.Coordinator]:
            answer = self.call(request, FindCoordinatorResponse)
            found = answer.coordinators[0] if batched else answer
            return found.error_code, found

        found = self._until_ready(ask)
        if found.error_code != ErrorCode.NONE:
            raise KafkaError(found.error_code, f"group {group_id!r}", found.error_message)
        return found.node_id

    def _until_ready(self, ask: Callable[[], tuple[int, T]]) -> T:
        """Ask again while the coordinator is being found or loaded, as every Kafka client does."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            error_code, answer = ask()
            if error_code not in _COORDINATOR_NOT_READY or time.monotonic() > deadline:
                return answer
            time.sleep(_RETRY_BACKOFF_S)

    def _any(self) -> Connection:
        if self._first is None:
            failures = []
            for host, port in self._bootstrap:
                try:
                    self._first = Connection(host, port, timeout_s=self._timeout_s)
                    break
                except ClientError as error:
                    failures.append(str(error))
            else:
                raise ClientError("; ".join(failures))
        return self._first

    def _node(self, node_id: int) -> Connection:
        if node_id not in self._by_node:
            for broker in self.metadata([]).brokers:
                if broker.node_id == node_id:
                    self._by_node[node_id] = Connection(broker.host, broker.port, timeout_s=self._timeout_s)
                    break
            else:
                raise ClientError(f"the cluster has no broker {node_id} at the moment")
        return self._by_node[node_id]
