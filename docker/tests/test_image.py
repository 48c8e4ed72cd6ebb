"""The image: its user, its size, its health check, its exit code, its data."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.container

Command = Callable[..., str]
ADDED_BYTES_MAX = 50_000_000
HEALTHY_WITHIN_S = 60


def _wait_until_ready(docker: Command, container: str) -> None:
    docker("exec", container, "odradek", "ready", "--container", "--timeout", "60")


def test_the_image_adds_little_to_its_base(docker: Command, image: str) -> None:
    size, base = (
        int(docker("image", "inspect", "--format", "{{.Size}}", name)) for name in (image, "python:3.11-slim")
    )
    assert size - base < ADDED_BYTES_MAX


def test_the_broker_is_not_root_and_owns_its_data(docker: Command, container: Command) -> None:
    broker = container()
    _wait_until_ready(docker, broker)
    assert docker("exec", broker, "id", "-u") == "1000"
    assert docker("exec", broker, "stat", "-c", "%U", "/var/lib/kafka/data/meta.properties") == "odradek"


def test_the_container_becomes_healthy(docker: Command, container: Command) -> None:
    broker = container()
    deadline = time.monotonic() + HEALTHY_WITHIN_S
    health = {"Status": "starting"}
    while health["Status"] == "starting" and time.monotonic() < deadline:
        # The engine has no event for the end of a check, so the test polls.
        health = json.loads(docker("inspect", "--format", "{{json .State.Health}}", broker))
    assert health["Status"] == "healthy", health


def test_the_health_check_follows_the_listeners(docker: Command, container: Command) -> None:
    broker = container("--hostname", "elsewhere", "-e", "KAFKA_LISTENERS=PLAINTEXT://elsewhere:7000")
    _wait_until_ready(docker, broker)


def test_sigterm_ends_the_container_with_exit_code_0(docker: Command, container: Command) -> None:
    broker = container()
    _wait_until_ready(docker, broker)
    docker("stop", "-t", "30", broker)
    assert docker("inspect", "--format", "{{.State.ExitCode}}", broker) == "0"


def test_records_survive_a_restart(docker: Command, container: Command) -> None:
    broker = container()
    _wait_until_ready(docker, broker)
    docker("exec", broker, "odradek", "topics", "create", "orders")
    docker("exec", broker, "odradek", "produce", "orders", "one", "two")
    docker("restart", "-t", "30", broker)
    _wait_until_ready(docker, broker)
    assert docker("exec", broker, "odradek", "consume", "orders").split() == ["0:0", "one", "0:1", "two"]


def test_records_in_a_volume_survive_their_container(docker: Command, volume: str, container: Command) -> None:
    first = container("-v", f"{volume}:/var/lib/kafka/data")
    _wait_until_ready(docker, first)
    docker("exec", first, "odradek", "topics", "create", "orders")
    docker("exec", first, "odradek", "produce", "orders", "one", "two")
    # SIGKILL, so that the broker writes nothing at its end.
    docker("kill", first)
    second = container("-v", f"{volume}:/var/lib/kafka/data")
    _wait_until_ready(docker, second)
    assert docker("exec", second, "odradek", "consume", "orders").split() == ["0:0", "one", "0:1", "two"]
