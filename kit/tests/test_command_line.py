"""The output and the exit codes of the `odradek` command."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek import Cluster
from odradek.cli import up
from odradek_broker.embedded import EmbeddedCluster

WAIT_S = 30


def odradek(*arguments: str, stdin: str = "", bootstrap: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command; `stdin` may have surrogates for bytes that are not UTF-8."""
    return subprocess.run(
        [sys.executable, "-c", "from odradek.cli import main; main()", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="surrogateescape",
        timeout=WAIT_S,
        env={**os.environ, **({"ODRADEK_BOOTSTRAP": bootstrap} if bootstrap else {})},
    )


def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """Start `odradek up`; return the process and the address that it prints."""
    broker = subprocess.Popen(
        [sys.executable, "-c", "from odradek.cli import main; main()", "up", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert broker.stdout is not None
    return broker, broker.stdout.readline().strip()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_serves_the_address_that_it_prints_and_exits_0_on_a_signal(number: signal.Signals) -> None:
    broker, address = start("--port", "0", "--topic", "orders:3", "--topic", "plain")
    try:
        listed = odradek("topics", "list", "--json", "-b", address)
        assert [(row["topic"], row["partitions"]) for row in json.loads(listed.stdout)] == [("orders", 3), ("plain", 1)]
    finally:
        broker.send_signal(number)
        assert broker.wait(WAIT_S) == 0


@pytest.mark.parametrize("data", [(), ("--data", "data")], ids=["temporary", "kept"])
def test_up_durable_syncs_before_it_acknowledges(
    data: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, str]] = []

    async def refuse(broker_settings: list[dict[str, str]], **_: object) -> None:
        started.extend(broker_settings)
        raise OSError("stop here")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(EmbeddedCluster, "start", refuse)
    CliRunner().invoke(up.command, ["--port", "0", *data])
    CliRunner().invoke(up.command, ["--port", "0", "--durable", *data])
    assert [settings.get("odradek.sync") for settings in started] == [None if data else "false", "always"]


def test_up_keeps_topics_and_records_in_its_data_directory(tmp_path: Path) -> None:
    for expected in (0, 1):
        broker, address = start("--port", "0", "--data", str(tmp_path / "data"), "--topic", "orders")
        try:
            read = odradek("consume", "orders", bootstrap=address)
            assert len(read.stdout.splitlines()) == expected
            assert odradek("produce", "orders", "x", bootstrap=address).returncode == 0
        finally:
            broker.terminate()
            assert broker.wait(WAIT_S) == 0


def test_up_without_data_removes_its_temporary_directory(tmp_path: Path) -> None:
    broker = subprocess.Popen(
        [sys.executable, "-c", "from odradek.cli import main; main()", "up", "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert broker.stdout is not None
    broker.stdout.readline()
    assert len(list(tmp_path.iterdir())) == 1
    broker.terminate()
    assert broker.wait(WAIT_S) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_a_one_line_error_and_exit_code_2() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = odradek("up", "--port", str(port), "--host", "127.0.0.1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"'127.0.0.1', {port}" in done.stderr
    assert "in use" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["up", "-o", "num.partitons=3"], "unknown setting num.partitons; did you mean num.partitions?"),
        (["up", "-o", "num.partitions"], "Invalid value: 'num.partitions' is not of the form name=value"),
        (["up", "-o", "a=1", "-o", "a=2"], "Invalid value: a is given twice"),
        (["up", "--config", "/no/such/file"], "cannot read /no/such/file: No such file or directory"),
        (["up", "--topic", "a:none"], "Invalid value for --topic: 'a:none' is not of the form NAME or NAME:PARTITIONS"),
        (
            ["up", "--zookeeper", "host:x/kafka", "--broker-id", "1"],
            "Invalid value for --zookeeper: 'host:x/kafka' is not of the form HOST:PORT[,HOST:PORT][/CHROOT]",
        ),
        (["up", "--port", "70000"], "Invalid value for '--port': 70000 is not in the range 0<=x<=65535."),
        (["up", "--emulate", "2.8"], "Invalid value for '--emulate': '2.8' is not one of '3.9', '4.0', '4.3'."),
        (
            ["up", "-o", "listeners=nonsense"],
            "listeners: cannot read 'nonsense', expected NAME://host:port",
        ),
        (["up", "--port", "0", "-o", "listeners=A://:1"], "--port and -o listeners=… cannot be combined"),
        (
            ["up", "--zookeeper", "localhost:1", "--broker-id", "1", "-o", "zookeeper.session.timeout.ms=x"],
            "Invalid value x for configuration zookeeper.session.timeout.ms: Not a number of type INT",
        ),
        (["nonsense"], "No such command 'nonsense'."),
        (["topics", "list", "-b", "localhost:1"], "no broker responds at localhost:1: Connection refused"),
        (["topics", "list", "-b", "local host:x"], "'local host:x' is not an address like localhost:9092"),
    ],
)
def test_bad_input_is_a_one_line_error_and_exit_code_2(arguments: list[str], line: str) -> None:
    done = odradek(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"odradek: {line}\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["topics", "create", "t", "-p", "9999999999"], "9999999999 is not in the range 1<=x<=2147483647."),
        (["topics", "create", "t", "-r", "99999"], "99999 is not in the range 1<=x<=32767."),
        (["topics", "create", "t", "-a", "9999999999"], "'9999999999' has an id above 2147483647"),
        (["topics", "grow", "orders", "9999999999"], "9999999999 is not in the range 1<=x<=2147483647."),
        (["topics", "create", "t" * 40_000], "CreateTopicsRequest v7, topics[0].name: "),
        (["consume", "orders", "--from", "@99999999999999999999"], "timestamp: 99999999999999999999: "),
    ],
)
def test_a_value_that_no_request_holds_is_a_one_line_error(cluster: Cluster, arguments: list[str], reason: str) -> None:
    cluster.reset()
    cluster.create_topic("orders")
    done = odradek(*arguments, bootstrap=cluster.bootstrap_servers)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert reason in done.stderr


@pytest.mark.parametrize("brokers", ["1", "2"])
def test_up_refuses_a_data_directory_of_something_else(tmp_path: Path, brokers: str) -> None:
    (tmp_path / "src").mkdir()
    for number in range(5):
        (tmp_path / f"notes{number}.txt").touch()
    before = sorted(tmp_path.rglob("*"))
    done = odradek("up", "--port", "0", "--brokers", brokers, "--data", str(tmp_path))
    assert done.returncode == 2
    assert f"{tmp_path} is not the data directory of " in done.stderr
    assert "holds notes0.txt, notes1.txt, notes2.txt and 3 more; use an empty directory, or one that" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_partitions_without_meta_properties_do_not_become_a_new_cluster(tmp_path: Path) -> None:
    with Cluster(data=tmp_path, topics={"orders": 1}):
        pass
    (tmp_path / "meta.properties").unlink()
    done = odradek("up", "--port", "0", "--data", str(tmp_path))
    assert done.returncode == 2
    assert (
        f"odradek: {tmp_path} has no meta.properties, and holds the partitions __cluster_metadata-0, orders-0; put the "
        "meta.properties of their broker back, or use an empty directory"
    ) in done.stderr
    assert not (tmp_path / "meta.properties").exists()


def test_up_refuses_a_data_directory_in_use(tmp_path: Path) -> None:
    with Cluster(data=tmp_path):
        done = odradek("up", "--port", "0", "--data", str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert str(tmp_path) in done.stderr


def test_up_reads_a_properties_file_and_warns_of_unknown_settings(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=4\nno.such.thing=1\n")
    broker, address = start("--port", "0", "--config", str(file))
    try:
        odradek("topics", "create", "t", bootstrap=address)
        (topic,) = json.loads(odradek("topics", "list", "--json", bootstrap=address).stdout)
        assert topic["partitions"] == 4
    finally:
        broker.terminate()
        _, log = broker.communicate(timeout=WAIT_S)
    assert "warning  setting is ignored  setting=no.such.thing reason='Kafka does not have it'" in log


def test_ready_exits_0_with_a_broker_and_1_without_one(cluster: Cluster) -> None:
    assert odradek("ready", bootstrap=cluster.bootstrap_servers).returncode == 0
    gone = odradek("ready", "--timeout", "0", bootstrap="localhost:1")
    assert (gone.returncode, gone.stderr) == (1, "odradek: no broker responds at localhost:1: Connection refused\n")


def test_consume_prints_the_records_that_produce_wrote(cluster: Cluster) -> None:
    cluster.reset()
    cluster.create_topic("t", 2)
    at = cluster.bootstrap_servers
    done = odradek("produce", "t", "--key", "k", "--header", "h=1", "--partition", "1", "v", bootstrap=at)
    assert (done.returncode, done.stderr) == (0, "1 record written to t\n")
    odradek("produce", "t", "--tombstone", "--key", "k", "--partition", "1", bootstrap=at)
    odradek("produce", "t", "--key-separator", ":", "--partition", "0", stdin="a:1\nb:2\n", bootstrap=at)
    read = [json.loads(line) for line in odradek("consume", "t", "--json", bootstrap=at).stdout.splitlines()]
    for record in read:
        assert record.pop("timestamp") > 0
    assert sorted(read, key=lambda record: (record["partition"], record["offset"])) == [
        {"topic": "t", "partition": 0, "offset": 0, "key": "a", "value": "1", "headers": []},
        {"topic": "t", "partition": 0, "offset": 1, "key": "b", "value": "2", "headers": []},
        {"topic": "t", "partition": 1, "offset": 0, "key": "k", "value": "v", "headers": [{"name": "h", "value": "1"}]},
        {"topic": "t", "partition": 1, "offset": 1, "key": "k", "value": None, "headers": []},
    ]
    assert odradek("consume", "t", "--from", "1", "-p", "0", bootstrap=at).stdout == "0:1\tb\t2\n"


def test_produce_writes_bytes_that_are_not_utf_8(cluster: Cluster) -> None:
    cluster.reset()
    cluster.create_topic("t")
    done = odradek("produce", "t", stdin="\udcff\n", bootstrap=cluster.bootstrap_servers)
    assert (done.returncode, done.stderr) == (0, "1 record written to t\n")
    (line,) = odradek("consume", "t", "--json", bootstrap=cluster.bootstrap_servers).stdout.splitlines()
    assert json.loads(line)["value_base64"] == "/w=="


def test_groups_are_reset_described_and_deleted(cluster: Cluster) -> None:
    cluster.reset()
    cluster.create_topic("t", 1)
    at = cluster.bootstrap_servers
    odradek("produce", "t", "1", "2", "3", bootstrap=at)
    assert odradek("groups", "reset", "g", "t", "--to", "1", bootstrap=at).returncode == 0
    described = odradek("groups", "describe", "g", "--json", bootstrap=at)
    assert json.loads(described.stdout) == [{"topic": "t", "partition": 0, "committed": 1, "end": 3, "lag": 2}]
    assert odradek("groups", "delete", "g", bootstrap=at).returncode == 0
    assert json.loads(odradek("groups", "list", "--json", bootstrap=at).stdout) == []
    gone = odradek("groups", "delete", "g", bootstrap=at)
    assert (gone.returncode, gone.stderr) == (2, "odradek: group 'g': it does not exist (GROUP_ID_NOT_FOUND)\n")


def test_topics_and_their_settings_are_created_changed_and_deleted(cluster: Cluster) -> None:
    cluster.reset()
    at = cluster.bootstrap_servers
    assert odradek("topics", "create", "t", "-p", "2", "-o", "retention.ms=60000", bootstrap=at).returncode == 0
    assert odradek("topics", "grow", "t", "3", bootstrap=at).returncode == 0
    assert odradek("configs", "set", "t", "segment.bytes=1048576", bootstrap=at).returncode == 0
    assert odradek("configs", "unset", "t", "retention.ms", bootstrap=at).returncode == 0
    shown = json.loads(odradek("configs", "show", "t", "--json", bootstrap=at).stdout)
    assert {"name": "segment.bytes", "value": "1048576", "source": "topic", "read_only": False} in shown
    assert "retention.ms" not in {row["name"] for row in shown}
    assert len(json.loads(odradek("topics", "describe", "t", "--json", bootstrap=at).stdout)) == 3
    assert odradek("topics", "delete", "t", bootstrap=at).returncode == 0
    assert json.loads(odradek("topics", "list", "--json", bootstrap=at).stdout) == []


def test_a_server_of_another_protocol_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"

        def respond() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=respond)
        thread.start()
        done = odradek("topics", "list", "-b", address)
        thread.join()
    reason = "a response must have 4 to 1073741824 bytes, got 1213486160"
    assert (done.returncode, done.stderr) == (2, f"odradek: {address} does not speak Kafka's protocol: {reason}\n")
