"""The report of a test that has timed out has the stacks and the unanswered requests of its processes."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from odradek_peers.jars import KAFKA_4_3
from odradek_peers.tools import JavaTools
from odradek_stacks import pytest_hooks
from odradek_stacks.collect import stacks_of_all

from odradek import Cluster
from odradek_wire.frames import encode_request
from odradek_wire.messages.fetch import FetchRequest

pytest_plugins = ["pytester"]
WAIT_S = 60
# Constants, because the stack of the waiting test shows its own source lines.
SCRIPT_STACK, JVM_STACK = ("in wait_forever",), ('"main"', "at org.apache.kafka.tools.consumer.ConsoleConsumer")
ONE_FETCH = "unanswered requests of clients and brokers: 1\nFetchRequest("


def wait_for_stacks(condition: Callable[[str], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition(text := stacks_of_all()):
        assert time.monotonic() < deadline, text


@pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])
def test_stacks_show_the_fetch_that_waits_for_records(process: bool) -> None:
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1000)
    topic = FetchRequest.FetchTopic("orders", partitions=[partition])
    request = FetchRequest(max_wait_ms=600_000, min_bytes=1, max_bytes=1000, topics=[topic])
    frame = encode_request(request, 12, 1, "test")
    with Cluster(topics={"orders": 1}, process=process) as cluster:
        host, port = cluster.bootstrap_servers.split(":")
        with socket.create_connection((host, int(port))) as client:
            client.sendall(struct.pack(">i", len(frame)) + frame)
            wait_for_stacks(lambda text: ONE_FETCH in text)


def test_stacks_show_a_python_process_stuck_in_a_system_call() -> None:
    command = [sys.executable, "-c", "def wait_forever(): import sys; sys.stdin.read()\nwait_forever()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as child:
        wait_for_stacks(lambda text: f"process {child.pid} " in text and all(each in text for each in SCRIPT_STACK))


def test_stacks_show_a_jvm() -> None:
    with JavaTools(KAFKA_4_3).start("kafka-console-consumer", "--topic=t", "--bootstrap-server=127.0.0.1:1"):
        wait_for_stacks(lambda text: all(each in text for each in JVM_STACK))


def test_a_failure_that_took_long_is_reported_with_stacks(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytest_hooks, "TIMEOUT_MIN_S", 0.0)
    pytester.makepyfile("def test_fails(): assert False, 'it never came true'")
    result = pytester.runpytest_inprocess("-p", "odradek_stacks.pytest_hooks")
    result.stdout.fnmatch_lines(["*Timeout: stacks of all processes, also in *", "==== this process*"])
    assert [file.name for file in (pytester.path / "build/stacks").iterdir()] == [
        "test-a-failure-that-took-long-is-reported-with-stacks-py-test-fails-call.txt"
    ]


def test_a_quick_failure_is_reported_without_stacks(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_fails(): assert False")
    result = pytester.runpytest_inprocess("-p", "odradek_stacks.pytest_hooks")
    result.stdout.no_fnmatch_line("*Timeout: stacks*")
