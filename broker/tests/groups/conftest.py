"""Scenarios of the group protocol: readable tables of requests and responses, and the code that plays them.

A scenario is a text file. Lines that begin with `#` are prose; the others are steps:

    name  Api version key=value ...  = response

`name` is a client with a connection of its own; the response is an error and the fields that matter, or `waits` (the
response is pending). The step `name answer` reads the response of the pending request. The first response binds `$x`,
later ones are compared with it. `time 500` advances the time by half a second. The same files are played on a shard
alone, on Odradek, and on Apache Kafka.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest
from broker.tests.alone import Node

from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.delete_groups import DeleteGroupsRequest
from odradek_wire.messages.describe_groups import DescribeGroupsRequest
from odradek_wire.messages.heartbeat import HeartbeatRequest
from odradek_wire.messages.join_group import JoinGroupRequest
from odradek_wire.messages.leave_group import LeaveGroupRequest
from odradek_wire.messages.offset_commit import OffsetCommitRequest
from odradek_wire.messages.offset_delete import OffsetDeleteRequest
from odradek_wire.messages.offset_fetch import OffsetFetchRequest
from odradek_wire.messages.sync_group import SyncGroupRequest

T = TypeVar("T")
SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))

DEFAULTS: dict[str, dict[str, str]] = {
    "JoinGroup": {
        "session_timeout_ms": "10000",
        "rebalance_timeout_ms": "10000",
        "protocol_type": "consumer",
        "protocols": "range",
        "member_id": "",
    },
    "SyncGroup": {"protocol_type": "consumer", "protocol_name": "range"},
}


@dataclass(slots=True)
class Step:
    """One line of a scenario."""

    line: str
    client: str
    api: str
    version: int
    args: dict[str, str]
    expected: str


class Driver(Protocol):
    """The system that a scenario is played on. `due`: a response must come, so that the driver may wait for it."""

    def ask(self, client: str, request: Message, version: int, due: bool) -> Message | None:
        """Return the response; None while it is pending."""

    def answer(self, client: str, due: bool) -> Message | None:
        """Return the response to the pending request of this client, if it has come."""

    def pass_time(self, ms: int) -> None: ...


def parse(text: str) -> list[Step]:
    steps = []
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        left, _, expected = line.partition(" = ")
        words = left.split()
        if words[0] == "time":
            steps.append(Step(line, "", "time", int(words[1]), {}, ""))
            continue
        if words[1] == "answer":
            steps.append(Step(line, words[0], "answer", 0, {}, expected.strip()))
            continue
        args = dict(word.split("=", 1) for word in words[3:])
        steps.append(Step(line, words[0], words[1], int(words[2]), args, expected.strip()))
    return steps


@dataclass
class Player:
    """Plays one scenario on a driver; groups get a prefix, so that one broker can serve many."""

    driver: Driver
    prefix: str = ""
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)

    def play(self, text: str) -> None:
        for step in parse(text):
            if step.api == "time":
                self.driver.pass_time(step.version)
                continue
            due = step.expected != "waits"
            if step.api == "answer":
                response = self.driver.answer(step.client, due)
            else:
                args = {key: self._filled(value) for key, value in step.args.items()}
                request = build(step.api, step.version, {"group_id": "g", **DEFAULTS.get(step.api, {}), **args}, self)
                response = self.driver.ask(step.client, request, step.version, due)
            got = "waits" if response is None else render(response)
            assert self._matches(step.expected, got), f"{step.line}\n  got: {got}\n  variables: {self.bound}"

    def _filled(self, text: str) -> str:
        return re.sub(r"\$(\w+)", lambda match: self.bound[match[0]], text)

    def _matches(self, expected: str, got: str) -> bool:
        wanted, found = expected.split(), dict(part.partition("=")[::2] for part in got.split(" ") if part)
        if wanted[0] != got.split(" ")[0]:
            return False
        for word in wanted[1:]:
            key, _, value = word.partition("=")
            if re.fullmatch(r"\$\w+", value) and value not in self.bound:
                self.bound[value] = found[key]
            if ",".join(sorted(self._filled(value).split(","))) != ",".join(sorted(found[key].split(","))):
                return False
        return True


def build(api: str, version: int, args: dict[str, str], player: Player) -> Message:
    """Build a request from the words of a step."""
    args = {**args, "group_id": player.prefix + args["group_id"], "version": str(version)}
    return BUILDERS[api](args)


def _join(args: dict[str, str]) -> Message:
    names = [entry.partition(":") for entry in args["protocols"].split(",") if entry]
    return JoinGroupRequest(
        group_id=args["group_id"],
        session_timeout_ms=int(args["session_timeout_ms"]),
        rebalance_timeout_ms=int(args["rebalance_timeout_ms"]),
        member_id=args["member_id"],
        group_instance_id=args.get("group_instance_id"),
        protocol_type=args["protocol_type"],
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name, data.encode()) for name, _, data in names],
    )


def _sync(args: dict[str, str]) -> Message:
    parts = [entry.rpartition(":") for entry in args.get("assignments", "").split(",") if entry]
    return SyncGroupRequest(
        group_id=args["group_id"],
        generation_id=int(args["generation_id"]),
        member_id=args["member_id"],
        group_instance_id=args.get("group_instance_id"),
        protocol_type=args["protocol_type"] if int(args["version"]) >= 5 else None,
        protocol_name=args["protocol_name"] if int(args["version"]) >= 5 else None,
        assignments=[SyncGroupRequest.SyncGroupRequestAssignment(name, data.encode()) for name, _, data in parts],
    )


def _heartbeat(args: dict[str, str]) -> Message:
    return HeartbeatRequest(
        args["group_id"], int(args["generation_id"]), args["member_id"], args.get("group_instance_id")
    )


def _leave(args: dict[str, str]) -> Message:
    # members=member:instance, either part may be missing.
    members = [entry.partition(":") for entry in args.get("members", "").split(",") if entry]
    return LeaveGroupRequest(
        args["group_id"],
        args.get("member_id", ""),
        [LeaveGroupRequest.MemberIdentity(name, instance or None) for name, _, instance in members],
    )


def _commit(args: dict[str, str]) -> Message:
    request = OffsetCommitRequest(
        args["group_id"], int(args.get("generation_id", "-1")), args.get("member_id", ""), args.get("group_instance_id")
    )
    request.retention_time_ms = int(args.get("retention_time_ms", "-1"))
    for entry in args["topics"].split(","):
        found = re.fullmatch(r"(\w+)/(\d+):(\d+):?(\w*)", entry)
        assert found, entry
        name, index, offset, metadata = found.groups()
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(int(index), int(offset))
        partition.committed_metadata = metadata * 5000 if metadata == "long" else metadata
        request.topics.append(OffsetCommitRequest.OffsetCommitRequestTopic(name, partitions=[partition]))
    return request


def _fetch(args: dict[str, str]) -> Message:
    topics: dict[str, list[int]] = {}
    for entry in args["topics"].split(","):
        name, _, index = entry.partition("/")
        if index:
            topics.setdefault(name, []).append(int(index))
    everything = args["topics"] == "all"
    old = [OffsetFetchRequest.OffsetFetchRequestTopic(name, indexes) for name, indexes in topics.items()]
    new = [
        OffsetFetchRequest.OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
        for name, indexes in topics.items()
    ]
    group = OffsetFetchRequest.OffsetFetchRequestGroup(args["group_id"], topics=None if everything else new)
    require_stable = args.get("require_stable") == "true"
    if int(args["version"]) >= 8:
        return OffsetFetchRequest(groups=[group], require_stable=require_stable)
    return OffsetFetchRequest(args["group_id"], None if everything else old, require_stable=require_stable)


def _delete_offsets(args: dict[str, str]) -> Message:
    request = OffsetDeleteRequest(args["group_id"])
    for entry in args["topics"].split(","):
        name, _, index = entry.partition("/")
        partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(int(index))
        request.topics.append(OffsetDeleteRequest.OffsetDeleteRequestTopic(name, [partition]))
    return request


BUILDERS: dict[str, Callable[[dict[str, str]], Message]] = {
    "JoinGroup": _join,
    "SyncGroup": _sync,
    "Heartbeat": _heartbeat,
    "LeaveGroup": _leave,
    "OffsetCommit": _commit,
    "OffsetFetch": _fetch,
    "OffsetDelete": _delete_offsets,
    "DescribeGroups": lambda args: DescribeGroupsRequest([args["group_id"]]),
    "DeleteGroups": lambda args: DeleteGroupsRequest([args["group_id"]]),
}


def render(response: Any) -> str:
    """Render a response in the words of a scenario: its error, then its fields."""
    match type(response).__name__:
        case "OffsetFetchResponse":
            group = response.groups[0] if response.groups else response
            offsets = [
                f"{topic.name}/{p.partition_index}:{p.committed_offset}"
                for topic in group.topics
                for p in topic.partitions
            ]
            return f"{ErrorCode(group.error_code).name} topics={','.join(offsets) or '-'}"
        case "OffsetCommitResponse" | "OffsetDeleteResponse":
            errors = [
                f"{topic.name}/{p.partition_index}:{ErrorCode(p.error_code).name}"
                for topic in response.topics
                for p in topic.partitions
            ]
            return f"{ErrorCode(getattr(response, 'error_code', 0)).name} topics={','.join(errors) or '-'}"
        case "DescribeGroupsResponse":
            group = response.groups[0]
            members = ",".join(f"{m.member_id}:{m.member_assignment.decode()}" for m in group.members)
            return (
                f"{ErrorCode(group.error_code).name} state={group.group_state}"
                f" protocol_type={group.protocol_type or '-'} protocol={group.protocol_data or '-'}"
                f" members={members or '-'}"
            )
        case "DeleteGroupsResponse":
            return ErrorCode(response.results[0].error_code).name
        case "JoinGroupResponse":
            members = ",".join(f"{m.member_id}:{m.metadata.decode()}" for m in response.members)
            return (
                f"{ErrorCode(response.error_code).name} generation_id={response.generation_id}"
                f" protocol_name={response.protocol_name or '-'} leader={response.leader or '-'}"
                f" member_id={response.member_id or '-'} members={members or '-'}"
                f" skip_assignment={str(response.skip_assignment).lower()}"
            )
        case "SyncGroupResponse":
            return f"{ErrorCode(response.error_code).name} assignment={response.assignment.decode() or '-'}"
        case "HeartbeatResponse":
            return ErrorCode(response.error_code).name
        case "LeaveGroupResponse":
            members = ",".join(f"{m.member_id}:{ErrorCode(m.error_code).name}" for m in response.members)
            return f"{ErrorCode(response.error_code).name} members={members or '-'}"
    raise AssertionError(response)


@pytest.fixture(params=SCENARIOS, ids=lambda path: path.stem)
def scenario(request: pytest.FixtureRequest) -> str:
    return Path(request.param).read_text()


@pytest.fixture
def play() -> type[Player]:
    return Player


class Running:
    """A node on a loop and a thread of its own, for clients that block."""

    def __init__(self, data: Path, config: dict[str, str]) -> None:
        self.config = {"log.dirs": str(data), "listeners": "PLAINTEXT://127.0.0.1:0", "node.id": "1", **config}
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        self.node = self.call(Node.start(self.config))

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.node.port}"

    def call(self, awaitable: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(awaitable, self.loop).result(30)

    def restart(self) -> None:
        port = self.node.port
        self.call(self.node.stop())
        self.node = self.call(Node.start({**self.config, "listeners": f"PLAINTEXT://127.0.0.1:{port}"}))

    def stop(self) -> None:
        self.call(self.node.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Start nodes on this test's directory, with settings as keywords (dots written as underscores)."""
    started: list[Running] = []

    def start(**config: str) -> Running:
        started.append(Running(tmp_path / "data", {name.replace("_", "."): value for name, value in config.items()}))
        return started[-1]

    yield start
    for running in started:
        running.stop()
