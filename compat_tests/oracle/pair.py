"""Apache Kafka and the broker under test: the same request to both, the responses normalized and compared."""

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from compat_tests.oracle.differences import unexplained
from compat_tests.oracle.peer import Closed, Peer, Var
from compat_tests.oracle.schema import Body

# The fields that identify an element of an array; brokers may list the same elements in another order.
_IDENTITY = (
    "name", "topic", "topic_name", "topic_id", "group_id", "key", "resource_type", "resource_name", "config_name",
    "partition_index", "partition", "index", "api_key", "node_id", "broker_id", "member_id", "log_dir", "feature",
    "transactional_id",
)  # fmt: skip
_CLOSED = "connection closed"
_PAUSE_S = 0.05

T = TypeVar("T")


def repeat_until_equal(ask: Callable[[], T], within_s: float) -> T:
    """Repeat a comparison until it succeeds: each side may apply a change later than the other."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return ask()
        except AssertionError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE_S)


class Pair:
    """`ask` sends a request to both brokers and fails if `differences` does not allow a difference of the responses."""

    def __init__(self, kafka: Peer, ours: Peer) -> None:
        self.kafka, self.ours = kafka, ours

    def ask(
        self,
        api: str,
        version: int,
        body: Body,
        select: Callable[[Body], object] = lambda response: response,
        learn: Callable[[Peer, Body], None] = lambda peer, response: None,
    ) -> Body:
        """Compare the responses and return Kafka's, with each broker's own values replaced by their names.

        `select` returns the part to compare, because a response may list the topics or groups of other tests; before
        that, `learn` may remember the broker's own values.
        """
        theirs, ours = (
            _comparable(peer, _response(peer, api, version, body, select, learn)) for peer in (self.kafka, self.ours)
        )
        unexpected = [
            f"{path or 'response'}: {_describe(left, right)}"
            for path, left, right in _differences(theirs, ours)
            if unexplained(api, path, left, right)
        ]
        assert not unexpected, (
            f"{api} {version} {body}:\n  " + "\n  ".join(unexpected) + f"\nKafka: {theirs}\nours:  {ours}"
        )
        response: Body = theirs
        return response

    def send_only(self, api: str, version: int, body: Body) -> None:
        """Send a request that has no response."""
        for peer in (self.kafka, self.ours):
            peer.send_only(api, version, body)

    def frame(self, frame: bytes) -> None:
        """Send any frame, and assert that both brokers send the same response or both close the connection."""
        responses: list[bytes | str] = []
        for peer in (self.kafka, self.ours):
            try:
                peer.send_frame(frame)
                responses.append(peer.receive())
            except Closed:
                peer.reconnect()
                responses.append(_CLOSED)
        theirs, ours = responses
        assert theirs == ours, f"{frame!r}: Kafka {theirs!r}, ours {ours!r}"

    def learn(self, api: str, version: int, body: Body, **names: Callable[[Body], Any]) -> None:
        """Send a request to both, and remember each broker's own values from its response, without a comparison."""
        for peer in (self.kafka, self.ours):
            response = peer.ask(api, version, body)
            for name, take in names.items():
                peer.remember(name, take(response))

    def create_topic(self, name: str, partitions: int = 1, configs: dict[str, str] | None = None) -> Var:
        """Create a topic on both and return its id, without a comparison: the tests of CreateTopics compare."""
        # Without retention, because the tests' records have old timestamps.
        wanted = {"retention.ms": "-1", **(configs or {})}
        settings = [{"name": key, "value": value} for key, value in wanted.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": settings}
        for peer in (self.kafka, self.ours):
            response = peer.ask("CreateTopics", 7, {"topics": [topic], "timeout_ms": 30000})
            assert response["topics"][0]["error_code"] in (0, 36), (peer.name, response)
            _wait_for_leaders(peer, name, partitions)
        return Var(f"id of {name}")

    def reconnect(self) -> None:
        """Open new connections to both."""
        for peer in (self.kafka, self.ours):
            peer.reconnect()


def until_coordinated(pair: Pair, group: str = "any") -> None:
    """Repeat requests until the group's coordinator has loaded; the first request creates __consumer_offsets."""
    for peer in (pair.kafka, pair.ours):
        while peer.ask("FindCoordinator", 3, {"key": group, "key_type": 0})["error_code"] != 0:
            pass
        while peer.ask("OffsetFetch", 7, {"group_id": group, "topics": None})["error_code"] != 0:
            pass


def _wait_for_leaders(peer: Peer, name: str, partitions: int) -> None:
    """Wait for the leaders, because Metadata may list a topic before its leader knows it; remember the topic's id."""
    asked = [{"partition_index": index, "timestamp": -1} for index in range(partitions)]
    while True:
        response = peer.ask("ListOffsets", 7, {"replica_id": -1, "topics": [{"name": name, "partitions": asked}]})
        if all(each["error_code"] == 0 for each in response["topics"][0]["partitions"]):
            break
    response = peer.ask("Metadata", 12, {"topics": [{"name": name}], "allow_auto_topic_creation": False})
    peer.remember(f"id of {name}", response["topics"][0]["topic_id"])


def _response(
    peer: Peer,
    api: str,
    version: int,
    body: Body,
    select: Callable[[Body], object],
    learn: Callable[[Peer, Body], None],
) -> Any:
    try:
        response = peer.ask(api, version, body)
    except Closed:
        peer.reconnect()
        return _CLOSED
    learn(peer, response)
    return select(response)


def _comparable(peer: Peer, value: Any) -> Any:
    """Replace the broker's own values by names, and sort arrays of structs by their identifying fields."""
    if isinstance(value, dict):
        return {name: _named(peer, name, _comparable(peer, each)) for name, each in value.items()}
    if isinstance(value, list):
        each_comparable = [_comparable(peer, each) for each in value]
        if value and isinstance(value[0], dict):
            each_comparable.sort(key=lambda each: [str(each[name]) for name in _IDENTITY if name in each])
        return each_comparable
    return value


def _named(peer: Peer, field: str, value: Any) -> Any:
    if field == "port" and value == peer.port:
        return "<port>"
    if field == "host" and value in (peer.host, "localhost"):
        return "<host>"
    if field in ("port", "host", "error_code") or isinstance(value, (list, dict)):
        return value
    # Numbers are not replaced, except producer ids that a test has remembered.
    names = peer.known if not isinstance(value, int) else peer.producers if field == "producer_id" else {}
    for name, own in names.items():
        if type(own) is type(value) and own == value:
            return f"<{name}>"
    return value


def _describe(theirs: Any, ours: Any) -> str:
    if isinstance(theirs, bytes) and isinstance(ours, bytes):
        position = next(
            (at for at, pair in enumerate(zip(theirs, ours, strict=False)) if pair[0] != pair[1]), "the end"
        )
        return (
            f"{len(theirs)} and {len(ours)} bytes, different from byte {position} on: "
            f"Kafka {theirs.hex(' ')}, ours {ours.hex(' ')}"
        )
    return f"Kafka {theirs!r}, ours {ours!r}"


def _differences(theirs: Any, ours: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs | ours:
            below = f"{path}.{name}" if path else name
            yield from _differences(theirs.get(name, "absent"), ours.get(name, "absent"), below)
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for number, (left, right) in enumerate(zip(theirs, ours, strict=True)):
            yield from _differences(left, right, f"{path}[{number}]")
    elif theirs != ours:
        yield path, theirs, ours
