"""`odradek cluster`, `reassign`, `elect` and `verify`, against a cluster of three brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek import Cluster
from odradek.cli import main
from odradek.client import Client
from odradek.client.cluster_state import BrokerInfo, ClusterState, PartitionInfo, cluster_state
from odradek.client.reassignment_plans import (
    ReassignmentPlanError,
    plan_as_json,
    plan_from_json,
    plan_to_drain,
    plan_to_move,
)
from odradek_wire.records import batch

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(brokers=3, racks=["a", "b", "c"]) as made:
        yield made


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    shared.reset()
    return shared


@pytest.fixture
def odradek(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command in this process; return its exit code, output and errors."""

    def run(kafka: Cluster, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setenv("ODRADEK_BOOTSTRAP", kafka.bootstrap_servers)
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        written = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, written.out, written.err

    return run


def replicas(kafka: Cluster, topic: str) -> list[tuple[int, ...]]:
    with Client(kafka.bootstrap_servers) as client:
        return [partition.replicas for partition in cluster_state(client, {topic}).partitions]


def leaders(kafka: Cluster, topic: str) -> list[int]:
    with Client(kafka.bootstrap_servers) as client:
        return [partition.leader for partition in cluster_state(client, {topic}).partitions]


def wait_in_sync(kafka: Cluster, topic: str) -> None:
    with Client(kafka.bootstrap_servers) as client:
        while any(partition.under_replicated for partition in cluster_state(client, {topic}).partitions):
            pass


def test_topics_are_created_on_the_brokers_that_are_named(cluster: Cluster, odradek: Run) -> None:
    assert odradek(cluster, "topics", "create", "t", "-a", "2,0", "-a", "1,2")[0] == 0
    assert replicas(cluster, "t") == [(2, 0), (1, 2)]


def test_cluster_exits_1_while_partitions_are_under_replicated(cluster: Cluster, odradek: Run) -> None:
    cluster.create_topic("t", 3, replicas=3)
    code, shown, _ = odradek(cluster, "cluster", "--json")
    document = json.loads(shown)
    assert code == 0
    assert [(row["broker"], row["rack"], row["replicas"], row["in_sync"]) for row in document["brokers"]] == [
        (0, "a", 3, 3),
        (1, "b", 3, 3),
        (2, "c", 3, 3),
    ]
    assert (document["partitions"], document["under_replicated"], document["offline"]) == (3, [], [])
    cluster.stop(1)
    try:
        code, shown, _ = odradek(cluster, "cluster", "--json")
        document = json.loads(shown)
        assert code == 1
        assert [row["state"] for row in document["brokers"]] == ["up", "down", "up"]
        assert [(row["partition"], sorted(row["isr"])) for row in document["under_replicated"]] == [
            (0, [0, 2]),
            (1, [0, 2]),
            (2, [0, 2]),
        ]
        code, shown, _ = odradek(cluster, "cluster", "--once")
        assert (code, shown.splitlines()[0]) == (
            1,
            "2 of 3 brokers up, 3 partitions, 3 under-replicated, 0 offline, 0 reassignments",
        )
    finally:
        cluster.start(1)
    wait_in_sync(cluster, "t")


def test_reassign_moves_replicas_to_the_named_brokers(cluster: Cluster, odradek: Run) -> None:
    cluster.create_topic("t", 3, replicas=1)
    code, shown, _ = odradek(cluster, "reassign", "t", "--to", "0,1,2", "-r", "2", "--wait", "--json")
    assert code == 0
    assert {row["state"] for row in json.loads(shown)} == {"done"}
    assert replicas(cluster, "t") == [(0, 1), (1, 2), (2, 0)]
    assert odradek(cluster, "reassign", "t:1", "--to", "2,1,0", "--wait")[0] == 0
    assert replicas(cluster, "t")[1] == (2, 1, 0)
    assert odradek(cluster, "reassign", "t:1", "--to", "2,1,0", "--verify")[0] == 0
    assert odradek(cluster, "reassign", "t:1", "--to", "0,1,2", "--verify")[0] == 1


def test_a_drained_broker_has_no_replicas(cluster: Cluster, odradek: Run) -> None:
    cluster.create_topic("t", 6, replicas=2)
    assert odradek(cluster, "reassign", "--drain", "1", "--wait")[0] == 0
    document = json.loads(odradek(cluster, "cluster", "--json")[1])
    assert [row["replicas"] for row in document["brokers"]] == [6, 0, 6]
    assert document["under_replicated"] == []


def test_reassign_prints_and_follows_plans_of_kafkas_tool(cluster: Cluster, odradek: Run, tmp_path: Path) -> None:
    cluster.create_topic("t", 1, replicas=1)
    plan = odradek(cluster, "reassign", "t", "--to", "2,1", "--generate")[1]
    assert json.loads(plan) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 1], "log_dirs": ["any", "any"]}],
    }
    file = tmp_path / "plan.json"
    file.write_text(plan)
    assert odradek(cluster, "reassign", "--file", str(file), "--wait")[0] == 0
    assert replicas(cluster, "t") == [(2, 1)]


def test_a_reassignment_to_a_dead_broker_is_shown_and_cancelled(cluster: Cluster, odradek: Run) -> None:
    cluster.create_topic("t", 1, replicas=1)
    (before,) = replicas(cluster, "t")
    missing = next(broker for broker in cluster.brokers if broker not in before)
    cluster.kill(missing)
    try:
        wanted = f"{missing},{before[0]}"
        code, shown, _ = odradek(cluster, "reassign", "t", "--to", wanted, "--throttle", "1000", "--json")
        assert (code, json.loads(shown)[0]["state"]) == (0, "moving, 0% copied")
        assert "throttled" in odradek(cluster, "configs", "show", "t")[1]
        rate = {"name": "leader.replication.throttled.rate", "value": "1000", "source": "broker", "read_only": False}
        assert rate in json.loads(odradek(cluster, "configs", "show", f"broker:{before[0]}", "--json")[1])
        assert odradek(cluster, "reassign", "--verify")[0] == 1
        (move,) = json.loads(odradek(cluster, "cluster", "--json")[1])["reassignments"]
        assert (move["topic"], move["adding"], move["copied"]) == ("t", [missing], 0.0)
        code, shown, _ = odradek(cluster, "reassign", "--cancel", "--json")
        assert (code, [row["state"] for row in json.loads(shown)]) == (0, ["cancelled"])
        assert replicas(cluster, "t") == [before]
        assert "throttled" not in odradek(cluster, "configs", "show", "t")[1]
    finally:
        cluster.start(missing)


def test_a_refused_reassignment_is_shown_and_exits_1(cluster: Cluster, odradek: Run) -> None:
    cluster.create_topic("t")
    code, shown, _ = odradek(cluster, "reassign", "t", "--to", "7", "--json")
    assert code == 1
    assert "broker 7" in json.loads(shown)[0]["state"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["reassign"], "nothing to do: give --to, --drain or --file"),
        (["reassign", "--to", "1"], "--to needs a topic or a partition"),
        (["reassign", "none", "--to", "1"], "topic 'none': it does not exist (UNKNOWN_TOPIC_OR_PARTITION)"),
        (["reassign", "t", "--to", "1,1"], "Invalid value for '--to': '1,1' names a broker twice"),
        (["reassign", "t", "--to", "1", "-r", "2"], "2 replicas need at least 2 brokers, got 1"),
        (["reassign", "t", "--to", "1", "--drain", "2"], "--to, --drain and --file cannot be combined"),
        (["elect", "--unclean"], "--unclean may lose records: give the topics or partitions"),
        (
            ["elect", "t:x"],
            "Invalid value for '[TOPIC[:PARTITION]]...': 't:x' is not of the form TOPIC or TOPIC:PARTITION",
        ),
        (["verify", "none"], "topic 'none': it does not exist (UNKNOWN_TOPIC_OR_PARTITION)"),
    ],
)
def test_bad_input_of_cluster_commands_is_a_one_line_error(
    cluster: Cluster, odradek: Run, arguments: list[str], line: str
) -> None:
    cluster.create_topic("t")
    assert odradek(cluster, *arguments) == (2, "", f"odradek: {line}\n")


def test_elect_makes_preferred_replicas_leaders(cluster: Cluster, odradek: Run) -> None:
    odradek(cluster, "topics", "create", "t", "-a", "1,0", "-a", "2,0")
    cluster.stop(1)
    cluster.start(1)
    wait_in_sync(cluster, "t")
    assert leaders(cluster, "t") == [0, 2]
    code, shown, _ = odradek(cluster, "elect", "--json")
    assert (code, json.loads(shown)) == (0, [{"topic": "t", "partition": 0, "result": "elected", "message": None}])
    assert leaders(cluster, "t") == [1, 2]
    assert odradek(cluster, "elect", "t:0", "--json")[:2] == (0, "[]\n")


def test_an_unclean_election_elects_a_replica_outside_the_isr(cluster: Cluster, odradek: Run) -> None:
    odradek(cluster, "topics", "create", "t", "-a", "1,2")
    cluster.stop(2)
    odradek(cluster, "produce", "t", "x")
    cluster.kill(1)
    cluster.start(2)
    assert leaders(cluster, "t") == [-1]
    assert odradek(cluster, "elect", "t")[0] == 1
    assert odradek(cluster, "elect", "t", "--unclean")[0] == 0
    assert leaders(cluster, "t") == [2]
    cluster.start(1)


def test_a_partition_without_a_leader_is_described_and_named(cluster: Cluster, odradek: Run) -> None:
    odradek(cluster, "topics", "create", "t", "-a", "1", "-a", "0")
    cluster.stop(1)
    try:
        code, shown, _ = odradek(cluster, "topics", "describe", "t", "--json")
        assert code == 0
        assert [(row["leader"], row["start"], row["end"]) for row in json.loads(shown)] == [
            (None, None, None),
            (0, 0, 0),
        ]
        line = "odradek: t-0: the partition has no leader, because no in-sync replica is running\n"
        assert odradek(cluster, "produce", "t", "-p", "0", "x") == (2, "", line)
        assert odradek(cluster, "consume", "t") == (2, "", line)
    finally:
        cluster.start(1)


def test_verify_reports_equal_replicas(cluster: Cluster, odradek: Run) -> None:
    cluster.create_topic("t", 2, replicas=3)
    odradek(cluster, "produce", "t", *(f"value {number}" for number in range(50)))
    code, shown, _ = odradek(cluster, "verify", "--json")
    assert code == 0
    assert [(row["partition"], row["end"], row["result"]) for row in json.loads(shown)] == [
        (0, 25, "same"),
        (1, 25, "same"),
    ]


def test_verify_names_the_first_offset_where_replicas_differ(tmp_path: Path, odradek: Run) -> None:
    with Cluster(brokers=3, data=tmp_path) as kafka:
        kafka.create_topic("t", 1, replicas=3)
        odradek(kafka, "topics", "create", "compacted", "-a", "0,1", "-o", "cleanup.policy=compact")
        for number in range(5):
            odradek(kafka, "produce", "t", "-k", "key", f"value {number}")
            odradek(kafka, "produce", "compacted", "-k", "key", f"value {number}")
        (leader,) = leaders(kafka, "t")
        assert odradek(kafka, "verify")[0] == 0
        kafka.stop()
        damaged = (leader + 1) % 3
        (file,) = (tmp_path / f"broker-{damaged}" / "t-0").glob("*.log")
        file.write_bytes(file.read_bytes().replace(b"value 3", b"VALUE 3"))
        (file,) = (tmp_path / "broker-1" / "compacted-0").glob("*.log")
        file.write_bytes(file.read_bytes().replace(b"value 2", b"VALUE 2"))
        kafka.start()
        wait_in_sync(kafka, "t")
        wait_in_sync(kafka, "compacted")
        (leader,) = leaders(kafka, "t")
        code, shown, _ = odradek(kafka, "verify", "--json")
        compacted, plain = json.loads(shown)
        assert code == 1
        assert (compacted["differs_at"], set(compacted["brokers"])) == (2, {0, 1})
        assert (plain["differs_at"], plain["brokers"][0], damaged in plain["brokers"]) == (3, leader, True)
        assert "differ at offset 3" in plain["result"]


def test_a_missing_record_is_a_difference_except_in_a_compacted_topic(tmp_path: Path, odradek: Run) -> None:
    with Cluster(brokers=2, data=tmp_path) as kafka:
        odradek(kafka, "topics", "create", "plain", "-a", "0,1")
        odradek(kafka, "topics", "create", "compacted", "-a", "0,1", "-o", "cleanup.policy=compact")
        for number in range(4):
            for topic in ("plain", "compacted"):
                odradek(kafka, "produce", topic, "-k", "key", f"value {number}")
        kafka.stop()
        for topic in ("plain", "compacted"):
            (file,) = (tmp_path / "broker-1" / f"{topic}-0").glob("*.log")
            data = file.read_bytes()
            _, second, *_ = batch.iterate(data)
            file.write_bytes(data[: second.position] + data[second.end :])
        kafka.start()
        wait_in_sync(kafka, "plain")
        wait_in_sync(kafka, "compacted")
        code, shown, _ = odradek(kafka, "verify", "--json")
        assert code == 1
        assert [(row["topic"], row["differs_at"]) for row in json.loads(shown)] == [("compacted", None), ("plain", 1)]


def test_verify_exits_1_when_a_replica_cannot_be_compared(cluster: Cluster, odradek: Run) -> None:
    odradek(cluster, "topics", "create", "t", "-a", "1,2")
    cluster.stop(2)
    try:
        code, shown, _ = odradek(cluster, "verify", "--json")
        assert (code, json.loads(shown)[0]["result"]) == (1, "broker 2 is not running")
    finally:
        cluster.start(2)


def state(racks: dict[int, str | None], *partitions: tuple[int, ...]) -> ClusterState:
    return ClusterState(
        {broker: BrokerInfo(broker, "h", 1, rack) for broker, rack in racks.items()},
        [PartitionInfo("t", index, each[0], each, each, ()) for index, each in enumerate(partitions)],
    )


def test_draining_prefers_other_racks_then_brokers_with_few_replicas() -> None:
    racks: dict[int, str | None] = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}
    assert plan_to_drain(state(racks, (0, 2), (4, 0), (4, 2)), 0) == {("t", 0): [1, 2], ("t", 1): [4, 3]}
    with pytest.raises(ReassignmentPlanError, match="cannot leave broker 1"):
        plan_to_drain(state({0: None, 1: None}, (0, 1)), 1)


def test_brokers_take_turns_as_the_preferred_leader() -> None:
    before = state({}, (9,), (9,), (9,), (9,))
    assert list(plan_to_move(before.partitions, [1, 2, 3], 2).values()) == [[1, 2], [2, 3], [3, 1], [1, 2]]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("{", "not JSON"),
        ("[]", "a plan must have the form"),
        ({"version": 2, "partitions": []}, "a plan must have the form"),
        ({"version": 1}, "a plan must have the form"),
        ({"version": 1, "partitions": 7}, "a plan must have the form"),
        ({"version": 1, "partitions": []}, "names no partition"),
        ({"version": 1, "partitions": [7]}, 'each of "partitions" must have the form .*, got 7'),
        ({"version": 1, "partitions": [{"topic": "t", "partition": 0}]}, 'each of "partitions" must have the form'),
        (
            {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": []}]},
            'each of "partitions" must have the form',
        ),
        (
            {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": 7}]},
            'each of "partitions" must have the form',
        ),
        ({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2}, "twice"),
        (
            {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]},
            "names log_dirs",
        ),
    ],
)
def test_a_malformed_plan_is_refused(document: Any, message: str) -> None:
    with pytest.raises(ReassignmentPlanError, match=message):
        plan_from_json(document if isinstance(document, str) else json.dumps(document))


def test_a_plan_survives_its_json() -> None:
    plan = {("t", 0): [1, 2], ("u", 3): [0]}
    assert plan_from_json(plan_as_json(plan)) == plan
