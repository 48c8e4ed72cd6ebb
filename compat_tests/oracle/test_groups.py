"""Classic groups and their offsets: members, commits, and the administrator's view of them.

The versions of the API under test vary; the other requests of a test have versions that every broker supports.
"""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.group_requests import (
    COMMIT_VERSION,
    DESCRIBE_VERSION,
    FETCH_VERSION,
    HEARTBEAT_VERSION,
    JOIN_VERSION,
    LEAVE_VERSION,
    SYNC_VERSION,
    as_member,
    become_member,
    join_body,
)
from compat_tests.oracle.pair import Pair, until_coordinated
from compat_tests.oracle.peer import Var
from compat_tests.oracle.schema import Body

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
_numbers = count()
UNKNOWN_ID = bytes(range(16))


def _pair(pair_for: PairFor, api: str, version: int) -> tuple[Pair, str]:
    pair = pair_for(api, version)
    group = f"group-{api}-{version}-{next(_numbers)}"
    until_coordinated(pair, group)
    return pair, group


@versions_of("JoinGroup")
def test_join_group_as_the_first_member(version: int, pair_for: PairFor) -> None:
    pair, group = _pair(pair_for, "JoinGroup", version)

    def join(member: object = "", **more: Any) -> Body:
        return join_body(group, member, **more)

    pair.learn("JoinGroup", version, join(), member=lambda response: response["member_id"])
    pair.ask("JoinGroup", version, join(Var("member")))
    pair.ask("JoinGroup", version, join("no such member"))
    pair.ask("JoinGroup", version, join(Var("member"), protocol_type="connect"))
    other = [{"name": "other", "metadata": b""}]
    pair.ask("JoinGroup", version, join("", protocols=other))
    pair.ask("JoinGroup", version, join(Var("member"), protocols=[]))
    for wrong in (0, 999, 1_000_000_000):
        pair.ask("JoinGroup", version, join(Var("member"), session_timeout_ms=wrong))
    pair.ask("JoinGroup", version, {**join(Var("member")), "group_id": ""})
    pair.ask("DescribeGroups", DESCRIBE_VERSION, {"groups": [group]})


@versions_of("JoinGroup", 5)
def test_join_group_as_a_static_member(version: int, pair_for: PairFor) -> None:
    pair, group = _pair(pair_for, "JoinGroup", version)
    static = join_body(group, group_instance_id="instance-1")

    pair.learn("JoinGroup", version, static, member=lambda response: response["member_id"])
    pair.ask("DescribeGroups", DESCRIBE_VERSION, {"groups": [group]})
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    assignments = [{"member_id": Var("member"), "assignment": b"a"}]
    body = {**as_member(group), "group_instance_id": "instance-1", **protocol, "assignments": assignments}
    pair.ask("SyncGroup", SYNC_VERSION, body)
    before = {peer: peer.known["member"] for peer in (pair.kafka, pair.ours)}
    pair.learn("JoinGroup", version, static, again=lambda response: response["member_id"])
    assert all(peer.known["again"] != member for peer, member in before.items())
    pair.ask("Heartbeat", HEARTBEAT_VERSION, {**as_member(group), "group_instance_id": "instance-1"})
    pair.ask(
        "Heartbeat", HEARTBEAT_VERSION, {**as_member(group, member=Var("again")), "group_instance_id": "instance-1"}
    )
    pair.ask("DescribeGroups", DESCRIBE_VERSION, {"groups": [group]})


@versions_of("SyncGroup")
def test_sync_group(version: int, pair_for: PairFor) -> None:
    pair, group = _pair(pair_for, "SyncGroup", version)
    become_member(pair, group, sync=False)

    def ask(generation: int = 1, member: object = Var("member"), **more: Any) -> None:
        named: Body = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        shares = [{"member_id": Var("member"), "assignment": b"all of it"}]
        body = {**as_member(group, generation, member), **named, "assignments": shares, **more}
        pair.ask("SyncGroup", version, body)

    ask(generation=7)
    ask(member="no such member")
    ask(member="")
    ask(group_id="no-such-group")
    ask(group_id="")
    if version >= 5:
        ask(protocol_type="connect")
        ask(protocol_name="other")
    ask()
    ask()
    if version >= 3:
        ask(group_instance_id="never seen")


@versions_of("Heartbeat")
def test_heartbeat(version: int, pair_for: PairFor) -> None:
    pair, group = _pair(pair_for, "Heartbeat", version)
    become_member(pair, group, sync=False)

    pair.ask("Heartbeat", version, as_member(group))
    pair.ask("SyncGroup", 3, {**as_member(group), "assignments": []})
    pair.ask("Heartbeat", version, as_member(group))
    pair.ask("Heartbeat", version, as_member(group, generation=2))
    pair.ask("Heartbeat", version, as_member(group, generation=-1))
    pair.ask("Heartbeat", version, as_member(group, member="no such member"))
    pair.ask("Heartbeat", version, as_member("no-such-group"))
    pair.ask("Heartbeat", version, as_member(""))


@versions_of("LeaveGroup")
def test_leave_group(version: int, pair_for: PairFor) -> None:
    pair, group = _pair(pair_for, "LeaveGroup", version)
    become_member(pair, group)

    def ask(member: object, group_id: str = group) -> None:
        who: Body = {"members": [{"member_id": member}]} if version >= 3 else {"member_id": member}
        pair.ask("LeaveGroup", version, {"group_id": group_id, **who})

    ask("no such member")
    ask(Var("member"), "no-such-group")
    ask(Var("member"), "")
    if version >= 3:
        unknown = [{"member_id": "", "group_instance_id": "never seen"}, {"member_id": "unknown"}]
        pair.ask("LeaveGroup", version, {"group_id": group, "members": unknown})
        pair.ask("LeaveGroup", version, {"group_id": group, "members": []})
    ask(Var("member"))
    ask(Var("member"))
    pair.ask("DescribeGroups", DESCRIBE_VERSION, {"groups": [group]})


def _commit_body(version: int, group: str, topics: dict[object, list[tuple[int, int]]], **more: Any) -> Body:
    asked = [
        {
            "topic_id" if version >= 10 else "name": topic,
            "partitions": [
                {"partition_index": index, "committed_offset": offset, "committed_metadata": f"at {offset}"}
                for index, offset in parts
            ],
        }
        for topic, parts in topics.items()
    ]
    return {"group_id": group, "topics": asked, **more}


@versions_of("OffsetCommit")
def test_offset_commit_outside_and_inside_a_generation(version: int, pair_for: PairFor) -> None:
    pair, group = _pair(pair_for, "OffsetCommit", version)
    topic_id = pair.create_topic("committed", 2)
    topic: object = topic_id if version >= 10 else "committed"

    def ask(parts: list[tuple[int, int]], *, of: object = topic, group_id: str = group, **more: Any) -> None:
        pair.ask("OffsetCommit", version, _commit_body(version, group_id, {of: parts}, **more))

    ask([(0, 5), (1, 7)])
    ask([(0, 6), (9, 1)])
    ask([(0, 1)], of=UNKNOWN_ID if version >= 10 else "no-such-topic")
    ask([(0, 1)], group_id="")
    pair.ask("OffsetCommit", version, {"group_id": group, "topics": []})
    if version >= 1:
        ask([(0, 8)], generation_id_or_member_epoch=3, member_id="unknown")
        become_member(pair, group)
        ask([(0, 9)], generation_id_or_member_epoch=1, member_id=Var("member"))
        ask([(0, 10)], generation_id_or_member_epoch=2, member_id=Var("member"))
        ask([(0, 11)], generation_id_or_member_epoch=1, member_id="unknown")
        ask([(0, 12)])
    _fetch_all(pair, group)


def _fetch_all(pair: Pair, group: str) -> None:
    pair.ask("OffsetFetch", FETCH_VERSION, {"group_id": group, "topics": None})


def _with_offsets(pair: Pair, group: str) -> Var:
    topic_id = pair.create_topic("committed", 2)
    pair.ask("OffsetCommit", COMMIT_VERSION, _commit_body(COMMIT_VERSION, group, {"committed": [(0, 5), (1, 7)]}))
    return topic_id


@versions_of("OffsetFetch", 0, 7)
def test_offset_fetch_of_one_group(version: int, pair_for: PairFor) -> None:
    pair, group = _pair(pair_for, "OffsetFetch", version)
    _with_offsets(pair, group)

    def ask(*topics: tuple[str, list[int]], of: str = group) -> None:
        asked = [{"name": name, "partition_indexes": indexes} for name, indexes in topics]
        pair.ask("OffsetFetch", version, {"group_id": of, "topics": asked})

    ask(("committed", [0, 1]))
    ask(("committed", [1, 9]), ("no-such-topic", [0]))
    ask(("committed", [0]), of="no-such-group")
    ask(("committed", [0]), of="")
    ask()
    if version >= 2:
        pair.ask("OffsetFetch", version, {"group_id": group, "topics": None})
        pair.ask("OffsetFetch", version, {"group_id": "no-such-group", "topics": None})


@versions_of("OffsetFetch", 8)
def test_offset_fetch_of_several_groups(version: int, pair_for: PairFor) -> None:
    pair, group = _pair(pair_for, "OffsetFetch", version)
    topic_id = _with_offsets(pair, group)
    named: Body = {"topic_id": topic_id} if version >= 10 else {"name": "committed"}
    unknown: Body = {"topic_id": UNKNOWN_ID} if version >= 10 else {"name": "no-such-topic"}

    def ask(*groups: Body) -> None:
        pair.ask("OffsetFetch", version, {"groups": list(groups)})

    some = {"group_id": group, "topics": [{**named, "partition_indexes": [0, 1, 9]}]}
    ask(some)
    ask({"group_id": group, "topics": None})
    ask(some, {"group_id": "no-such-group", "topics": [{**named, "partition_indexes": [0]}]})
    ask({"group_id": group, "topics": [{**unknown, "partition_indexes": [0]}]})
    ask({"group_id": group, "topics": []}, {"group_id": "", "topics": None})
    ask()
    if version >= 9:
        ask({"group_id": group, "topics": None, "member_id": "unknown", "member_epoch": 1})
    pair.ask("OffsetFetch", version, {"groups": [some], "require_stable": True})


@versions_of("OffsetDelete")
def test_offset_delete(version: int, pair_for: PairFor) -> None:
    pair, group = _pair(pair_for, "OffsetDelete", version)
    _with_offsets(pair, group)

    def ask(name: str, *indexes: int, of: str = group) -> None:
        asked = [{"name": name, "partitions": [{"partition_index": index} for index in indexes]}]
        pair.ask("OffsetDelete", version, {"group_id": of, "topics": asked})

    ask("committed", 0)
    ask("committed", 0, 9)
    ask("no-such-topic", 0)
    ask("committed", 0, of="no-such-group")
    ask("committed", 0, of="")
    _fetch_all(pair, group)
    become_member(pair, group)
    ask("committed", 1)
    _fetch_all(pair, group)


@versions_of("ListGroups")
def test_list_groups(version: int, pair_for: PairFor) -> None:
    pair, group = _pair(pair_for, "ListGroups", version)
    become_member(pair, group)

    def ask(**filters: Any) -> None:
        pair.ask("ListGroups", version, filters, _only(group))

    ask()
    if version >= 4:
        ask(states_filter=["Stable"])
        ask(states_filter=["Empty", "Dead"])
        ask(states_filter=["no such state"])
    if version >= 5:
        ask(types_filter=["classic"])
        ask(types_filter=["consumer"])
        ask(types_filter=["no such type"])


def _only(group: str) -> Callable[[Body], Body]:
    return lambda response: {**response, "groups": [each for each in response["groups"] if each["group_id"] == group]}


@versions_of("DescribeGroups")
def test_describe_groups(version: int, pair_for: PairFor) -> None:
    pair, group = _pair(pair_for, "DescribeGroups", version)

    def ask(*groups: str, **more: Any) -> None:
        pair.ask("DescribeGroups", version, {"groups": list(groups), **more})

    ask(group)
    become_member(pair, group, sync=False)
    ask(group)
    pair.ask("SyncGroup", 3, {**as_member(group), "assignments": [{"member_id": Var("member"), "assignment": b"a"}]})
    ask(group, "no-such-group")
    ask("")
    ask()
    if version >= 3:
        ask(group, include_authorized_operations=True)
    pair.ask("LeaveGroup", 2, {"group_id": group, "member_id": Var("member")})
    ask(group)


@versions_of("DeleteGroups")
def test_delete_groups(version: int, pair_for: PairFor) -> None:
    pair, group = _pair(pair_for, "DeleteGroups", version)
    _with_offsets(pair, group)
    become_member(pair, group)

    def ask(*groups: str) -> None:
        pair.ask("DeleteGroups", version, {"groups_names": list(groups)})

    ask(group)
    pair.ask("LeaveGroup", 2, {"group_id": group, "member_id": Var("member")})
    ask("no-such-group", "")
    ask(group)
    ask(group)
    _fetch_all(pair, group)


def test_two_members_rebalance(pair_for: PairFor) -> None:
    pair, group = _pair(pair_for, "JoinGroup", JOIN_VERSION)
    become_member(pair, group)
    second = {"member_id": "", "group_instance_id": None}
    pair.learn("JoinGroup", JOIN_VERSION, join_body(group, **second), second=lambda response: response["member_id"])

    pair.ask("Heartbeat", HEARTBEAT_VERSION, as_member(group))
    pair.ask("OffsetCommit", COMMIT_VERSION, {**_commit_body(COMMIT_VERSION, group, {}), "member_id": Var("member"),
                                       "generation_id_or_member_epoch": 1})  # fmt: skip
    pair.ask("Heartbeat", HEARTBEAT_VERSION, as_member(group, member=Var("second")))
    pair.ask("LeaveGroup", LEAVE_VERSION, {"group_id": group, "members": [{"member_id": Var("second")}]})
    pair.ask("LeaveGroup", LEAVE_VERSION, {"group_id": group, "members": [{"member_id": Var("member")}]})
