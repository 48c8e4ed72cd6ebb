"""`odradek cluster`, `reassign`, `elect` and `verify` work with Kafka's brokers as they do with Odradek's."""

import json
import subprocess
import sys
import time
from typing import Any

from compat_tests.cluster.clusters import BrokerCluster

_SECONDS = 60.0


def _odradek(cluster: BrokerCluster, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from odradek.cli import main; main()", *arguments]
    servers = cluster.bootstrap_servers
    return subprocess.run(
        [*command, "-b", servers], capture_output=True, text=True, timeout=_SECONDS, check=False, input=""
    )


def _rows(cluster: BrokerCluster, *arguments: str, code: int = 0) -> Any:
    done = _odradek(cluster, *arguments, "--json")
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def _until_well(cluster: BrokerCluster) -> None:
    deadline = time.monotonic() + _SECONDS
    while _odradek(cluster, "cluster", "--once").returncode != 0:
        assert time.monotonic() < deadline


def test_commands_place_move_elect_and_verify_replicas(cluster: BrokerCluster) -> None:
    assert _odradek(cluster, "topics", "create", "by-command", "-a", "1,0", "-a", "2,1").returncode == 0
    _until_well(cluster)
    for _ in range(3):
        assert _odradek(cluster, "produce", "by-command", *map(str, range(100))).returncode == 0

    moved = _rows(cluster, "reassign", "by-command", "--to", "0,1,2", "--throttle", "100000000", "--wait")
    assert [(row["replicas"], row["state"]) for row in moved] == [([0, 1, 2], "done"), ([1, 2, 0], "done")]
    _rows(cluster, "elect", "by-command")
    _until_well(cluster)
    compared = _rows(cluster, "verify", "by-command")
    assert [(row["end"], row["result"]) for row in compared] == [(150, "same"), (150, "same")]

    cluster.stop(1)
    try:
        seen = _rows(cluster, "cluster", code=1)
        states = {row["broker"]: row["state"] for row in seen["brokers"]}
        assert states == {0: "up", 1: "down", 2: "up"}
        assert {row["topic"] for row in seen["under_replicated"]} >= {"by-command"}
        compared = _rows(cluster, "verify", "by-command", code=1)
        assert {row["result"] for row in compared} == {"broker 1 is not running"}
    finally:
        cluster.start(1)
    _until_well(cluster)
    elected = _rows(cluster, "elect", "by-command")
    assert [(row["partition"], row["result"]) for row in elected] == [(1, "elected")]


def test_a_broker_is_drained(cluster: BrokerCluster) -> None:
    for number in range(3):
        replicas = f"{number},{(number + 1) % 3}"
        assert _odradek(cluster, "topics", "create", f"drained-{number}", "-a", replicas).returncode == 0
    _until_well(cluster)
    for topic in ("drained-0", "drained-1", "drained-2"):
        assert _odradek(cluster, "produce", topic, "x").returncode == 0
        moved = _rows(cluster, "reassign", topic, "--drain", "2", "--wait")
        assert all(row["state"] == "done" and 2 not in row["replicas"] for row in moved)
