"""Kafka's and ZooKeeper's jars, fetched by Maven into one folder for each release, and for each of its frameworks.

Owns the list of artifacts of a release with its server and tools. Maven's configuration names the repository.
"""

import subprocess
import sys
from pathlib import Path
from xml.sax.saxutils import escape

from odradek_peers.cache import filled_once

KAFKA_4_3 = "4.3.0"
KAFKA_4_0 = "4.0.0"
KAFKA_3_9 = "3.9.1"
KAFKA_1_1 = "1.1.1"
"""The last release with consumers that keep their groups in ZooKeeper; for its clients and tools, not as a server."""
ZOOKEEPER = "3.8.4"
"""The release that Kafka 3.9 was built and shipped with."""

_MAVEN_SECONDS = 900.0
_COPY_DEPENDENCIES = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"

_LOG4J_2 = [
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.3"),
    ("org.apache.logging.log4j", "log4j-core", "2.25.3"),
    ("org.apache.logging.log4j", "log4j-api", "2.25.3"),
]

# The server and the tools, and the logging backend, which is in the release but is no dependency of theirs.
_ARTIFACTS: dict[str, list[tuple[str, str, str]]] = {
    KAFKA_4_3: [
        ("org.apache.kafka", "kafka_2.13", KAFKA_4_3),
        ("org.apache.kafka", "kafka-tools", KAFKA_4_3),
        *_LOG4J_2,
    ],
    KAFKA_4_0: [
        ("org.apache.kafka", "kafka_2.13", KAFKA_4_0),
        ("org.apache.kafka", "kafka-tools", KAFKA_4_0),
        *_LOG4J_2,
    ],
    KAFKA_3_9: [
        ("org.apache.kafka", "kafka_2.13", KAFKA_3_9),
        ("org.apache.kafka", "kafka-tools", KAFKA_3_9),
        ("ch.qos.reload4j", "reload4j", "1.2.25"),
        ("org.slf4j", "slf4j-reload4j", "1.7.36"),
    ],
    KAFKA_1_1: [
        ("org.apache.kafka", "kafka_2.11", KAFKA_1_1),
        ("ch.qos.reload4j", "reload4j", "1.2.25"),
        ("org.slf4j", "slf4j-reload4j", "1.7.36"),
    ],
}

_STREAMS_ARTIFACTS = [("org.apache.kafka", "kafka-streams", KAFKA_4_3), *_LOG4J_2]
_CONNECT_ARTIFACTS = [
    ("org.apache.kafka", "connect-runtime", KAFKA_4_3),
    ("org.apache.kafka", "connect-file", KAFKA_4_3),
    ("org.apache.kafka", "connect-mirror", KAFKA_4_3),
    *_LOG4J_2,
]

# The server, and the artifacts that it loads at its start but that are no dependencies of its artifact.
_ZOOKEEPER_ARTIFACTS = [
    ("org.apache.zookeeper", "zookeeper", ZOOKEEPER),
    ("io.dropwizard.metrics", "metrics-core", "4.1.12.1"),
    ("org.xerial.snappy", "snappy-java", "1.1.10.5"),
]


def libs(version: str) -> Path:
    """Return the folder with all jars of one release; the first call on a machine fetches them (about a minute)."""
    if version not in _ARTIFACTS:
        raise ValueError(f"Kafka {version} is not supported; supported releases: {', '.join(_ARTIFACTS)}")
    return _fetched(f"kafka-{version}", _ARTIFACTS[version])


def streams_libs() -> Path:
    """Return the folder with all jars of Kafka Streams 4.3, including RocksDB; the first call fetches them."""
    return _fetched(f"kafka-streams-{KAFKA_4_3}", _STREAMS_ARTIFACTS)


def connect_libs() -> Path:
    """Return the folder with all jars of Kafka Connect 4.3, file connectors and MirrorMaker 2; the first call fetches
    them."""
    return _fetched(f"kafka-connect-{KAFKA_4_3}", _CONNECT_ARTIFACTS)


def zookeeper_libs() -> Path:
    """Return the folder with all jars of ZooKeeper's server; the first call on a machine fetches them."""
    return _fetched(f"zookeeper-{ZOOKEEPER}", _ZOOKEEPER_ARTIFACTS)


def _fetched(name: str, artifacts: list[tuple[str, str, str]]) -> Path:
    return filled_once(name, lambda folder: _fetch(name, artifacts, folder)) / "libs"


def _fetch(name: str, artifacts: list[tuple[str, str, str]], folder: Path) -> None:
    pom = folder / "pom.xml"
    pom.write_text(_pom(artifacts))
    print(f"downloading {name} with Maven into {folder.parent} ...", file=sys.stderr, flush=True)
    command = [
        "mvn", "-q", "-B", "-f", str(pom), _COPY_DEPENDENCIES,
        f"-DoutputDirectory={folder / 'libs'}", "-DincludeScope=runtime",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_MAVEN_SECONDS,
            check=False,
        )
    except FileNotFoundError as missing:
        raise RuntimeError("cannot download Kafka's jars: install Maven, which provides `mvn`") from missing
    except subprocess.TimeoutExpired as late:
        raise RuntimeError(f"Maven did not download {name} within {_MAVEN_SECONDS:.0f} s") from late
    if done.returncode != 0:
        raise RuntimeError(f"Maven could not download {name}:\n{done.stdout[-3000:]}")


def _pom(artifacts: list[tuple[str, str, str]]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{escape(group)}</groupId><artifactId>{escape(artifact)}</artifactId>"
        f"<version>{escape(version)}</version></dependency>"
        for group, artifact, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>odradek</groupId><artifactId>kafka-peer</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>\n"
    )
