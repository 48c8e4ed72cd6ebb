"""Fixtures for the tests of the image: the container engine, without which they skip, and the image, built once.

The fixtures remove the containers, networks and volumes of a test. The image stays, as a cache for the next run.
"""

from __future__ import annotations

import importlib
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

# pytest has imported this folder's parent as the module `docker`; testcontainers needs the package of that name.
if not hasattr(sys.modules.get("docker"), "from_env"):
    sys.modules.pop("docker", None)
    importlib.import_module("docker")

ROOT = Path(__file__).parents[2]
IMAGE = "odradek:test"
TIMEOUT_S = 600
"""The limit for one command; building the image takes minutes on a slow machine."""

Command = Callable[..., str]
"""Runs a command with these arguments and additional variables in `environment`. Returns its output; raises
AssertionError if it fails."""


def _command(program: str) -> Command:
    def run(*arguments: str, environment: dict[str, str] | None = None) -> str:
        done = subprocess.run(
            [program, *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**os.environ, **(environment or {})},
            check=False,
        )
        if done.returncode != 0:
            command = f"{program} {' '.join(arguments)}"
            raise AssertionError(f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    return run


@pytest.fixture(scope="session")
def docker() -> Command:
    """The `docker` command, if its engine responds."""
    if shutil.which("docker") is None:
        pytest.skip("no container engine: the docker command is missing (tools/engine installs it)")
    version = subprocess.run(["docker", "version"], capture_output=True, text=True, timeout=30, check=False)
    if version.returncode != 0:
        pytest.skip(f"no container engine responds (tools/engine starts one): {version.stderr.strip()}")
    return _command("docker")


@pytest.fixture(scope="session")
def image(docker: Command) -> str:
    docker("build", "--network", "host", "-q", "-t", IMAGE, "-f", str(ROOT / "docker/Dockerfile"), str(ROOT))
    return IMAGE


@pytest.fixture
def container(docker: Command, image: str) -> Iterator[Command]:
    """A function that starts a container of the image with options of `docker run` and returns its id."""
    started: list[str] = []

    def start(*options: str) -> str:
        started.append(docker("run", "-d", *options, image))
        return started[-1]

    yield start
    if started:
        docker("rm", "-f", "-v", *started)


@pytest.fixture
def network(docker: Command) -> Iterator[str]:
    """Removed after the containers if the test names it before `container`."""
    name = f"odradek-test-{uuid.uuid4().hex[:8]}"
    docker("network", "create", name)
    yield name
    docker("network", "rm", name)


@pytest.fixture
def volume(docker: Command) -> Iterator[str]:
    """Removed after the containers if the test names it before `container`."""
    name = docker("volume", "create")
    yield name
    docker("volume", "rm", name)


@pytest.fixture
def compose(docker: Command, image: str) -> Iterator[Command]:
    """A function that runs `docker-compose` on a file, in a project that ends with the test."""
    if shutil.which("docker-compose") is None:
        pytest.skip("the docker-compose command is missing")
    run = _command("docker-compose")
    project = f"odradek-test-{uuid.uuid4().hex[:8]}"
    variables = {"ODRADEK_IMAGE": image, "KAFKA_IMAGE": image}
    used: dict[Path, dict[str, str]] = {}

    def call(file: Path, *arguments: str, environment: dict[str, str] | None = None) -> str:
        used[file] = {**variables, **(environment or {})}
        return run("-p", project, "-f", str(file), *arguments, environment=used[file])

    yield call
    for file, environment in used.items():
        run("-p", project, "-f", str(file), "down", "-v", "-t", "5", environment=environment)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@pytest.fixture
def client_of() -> Callable[[str], Command]:
    """A function that takes an address and returns a function that writes and reads values there, from this host."""
    from confluent_kafka import Consumer, Producer

    def at(bootstrap: str) -> Command:
        def round_trip(topic: str, *values: str) -> str:
            producer = Producer({"bootstrap.servers": bootstrap})
            for value in values:
                producer.produce(topic, value.encode())
            assert producer.flush(30) == 0
            consumer = Consumer(
                {"bootstrap.servers": bootstrap, "group.id": f"{topic}-readers", "auto.offset.reset": "earliest"}
            )
            consumer.subscribe([topic])
            try:
                messages = consumer.consume(len(values), timeout=30)
            finally:
                consumer.close()
            return " ".join(sorted((message.value() or b"").decode() for message in messages))

        return round_trip

    return at
