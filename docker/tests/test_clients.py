"""Clients of a broker in a container: on the host, in other containers, with compose files and testcontainers."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.container

Command = Callable[..., str]
ROOT = Path(__file__).parents[2]
APACHE_KAFKA_FILE = Path(__file__).parent / "apache-kafka-compose.yaml"
OURS_FILE = ROOT / "docker/compose.yaml"
READY = ("odradek", "ready", "--container", "--timeout", "60")


def _values(lines: str) -> list[str]:
    """The values in the output of `odradek consume --json`."""
    return [json.loads(line)["value"] for line in lines.splitlines()]


def test_a_client_on_the_host_writes_and_reads(
    docker: Command, container: Command, free_port: int, client_of: Callable[[str], Command]
) -> None:
    broker = container(
        *("-p", f"127.0.0.1:{free_port}:9092"),
        *("-e", f"KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:{free_port}"),
    )
    docker("exec", broker, *READY)
    assert client_of(f"localhost:{free_port}")("from-host", "one", "two") == "one two"


def test_a_client_in_another_container_connects_without_settings(
    docker: Command, network: str, container: Command, image: str
) -> None:
    broker = container("--network", network, "--network-alias", "kafka")
    docker("exec", broker, *READY)
    client = ("run", "--rm", "--network", network, "-e", "ODRADEK_BOOTSTRAP=kafka:19092", image)
    docker(*client, "topics", "create", "from-container")
    docker(*client, "produce", "from-container", "one", "two")
    assert _values(docker(*client, "consume", "from-container", "--json")) == ["one", "two"]


def test_a_compose_file_of_apache_kafka_works_with_our_image(
    compose: Command, free_port: int, client_of: Callable[[str], Command]
) -> None:
    environment = {"KAFKA_HOST_PORT": str(free_port)}
    compose(APACHE_KAFKA_FILE, "up", "-d", environment=environment)
    inside = (APACHE_KAFKA_FILE, "exec", "-T", "broker")
    compose(*inside, *READY, environment=environment)
    assert client_of(f"localhost:{free_port}")("from-host", "one", "two") == "one two"
    read = compose(*inside, "odradek", "consume", "from-host", "--json", "-b", "broker:19092", environment=environment)
    assert sorted(_values(read)) == ["one", "two"]

    from confluent_kafka.admin import AdminClient

    cluster = AdminClient({"bootstrap.servers": f"localhost:{free_port}"}).list_topics(timeout=10)
    assert [str(cluster.cluster_id), list(cluster.brokers)] == ["4L6g3nShT-eMCtK--X86sw", [7]]
    assert len(cluster.topics["from-host"].partitions) == 5


def test_our_compose_file_succeeds_again_on_its_data(compose: Command) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 9092))
        except OSError:
            pytest.skip("port 9092, which the compose file publishes, is in use")
    for _ in range(2):
        shown = compose(OURS_FILE, "up", "--no-build", "--no-color", "--exit-code-from", "client")
        for word in ("hello", "from", "another", "container"):
            assert re.search(rf"^client_1 .*\b{word}$", shown, re.MULTILINE), shown


def test_testcontainers_start_the_image_for_a_client_on_the_host(
    image: str, client_of: Callable[[str], Command]
) -> None:
    from odradek.containers import OdradekContainer

    with OdradekContainer(image, config={"num.partitions": 2}) as kafka:
        assert client_of(kafka.get_bootstrap_server())("from-host", "one", "two") == "one two"


def test_testcontainers_start_the_image_for_other_containers(docker: Command, image: str) -> None:
    from testcontainers.core.network import Network

    from odradek.containers import OdradekContainer

    with Network() as network, OdradekContainer(image, network_alias="kafka").with_network(network):
        client = ("run", "--rm", "--network", network.name, "-e", "ODRADEK_BOOTSTRAP=kafka:19092", image)
        docker(*client, "topics", "create", "from-container")
        docker(*client, "produce", "from-container", "one", "two")
        assert _values(docker(*client, "consume", "from-container", "--json")) == ["one", "two"]
