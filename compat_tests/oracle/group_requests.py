"""Bodies of a classic group's requests, and a member that joins."""

from typing import Any

from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Var
from compat_tests.oracle.schema import Body

JOIN_VERSION = 7
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
LEAVE_VERSION = 5
COMMIT_VERSION = 8
FETCH_VERSION = 7
DESCRIBE_VERSION = 5


# A subscription of the consumer protocol, version 0: no topics, no user data. Kafka 4.3 never answers a member whose
# subscription it cannot parse.
SUBSCRIPTION = b"\x00\x00" + b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff"


def join_body(group: str, member: object = "", **more: Any) -> Body:
    return {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": SUBSCRIPTION}],
        **more,
    }


def become_member(pair: Pair, group: str, *, sync: bool = True) -> None:
    """Join as the only member, whose id is `Var("member")` afterwards; with `sync`, assign everything to it."""
    pair.learn("JoinGroup", JOIN_VERSION, join_body(group), member=lambda response: response["member_id"])
    pair.ask("JoinGroup", JOIN_VERSION, join_body(group, Var("member")))
    if sync:
        assignment = {"member_id": Var("member"), "assignment": b"all of it"}
        protocol = {"protocol_type": "consumer", "protocol_name": "range"}
        pair.ask("SyncGroup", SYNC_VERSION, {**as_member(group), **protocol, "assignments": [assignment]})


def as_member(group: str, generation: int = 1, member: object = Var("member")) -> Body:
    return {"group_id": group, "generation_id": generation, "member_id": member}
