"""The settings that differ between the brokers of a cluster: id, listener, directories, rack.

A single broker uses the data directory itself, as in Kafka's combined mode. With several brokers the data directory has
`broker-0`, `broker-1` and so on, and `controller` for the cluster's metadata.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.client.client import format_address
from odradek.exceptions import DataDirectoryError
from odradek_log.foreign import joined_names

CONTROLLER = "controller"
_META_PROPERTIES = "meta.properties"
_CLUSTER_ENTRIES = re.compile(rf"{CONTROLLER}|broker-\d+|lost\+found")
_REPLICATION_FACTOR_MAX = 3
_INTERNAL_TOPIC_SETTINGS = ("offsets.topic.replication.factor", "transaction.state.log.replication.factor")

PER_BROKER_SETTINGS = frozenset({"listeners", "advertised.listeners", "node.id", "broker.id", "log.dirs", "log.dir"})
"""Settings that must differ between brokers."""


def cluster_settings(
    common: Mapping[str, str], directory: Path, host: str, ports: Sequence[int], racks: Sequence[str | None]
) -> list[dict[str, str]]:
    """Return the settings of the brokers 0, 1, …, one for each port; `common` takes precedence.

    Raises DataDirectoryError for a directory that holds another number of brokers, or something else.
    """
    single_broker = len(ports) == 1
    if single_broker and (directory / CONTROLLER).exists():
        raise DataDirectoryError(f"{directory} holds the data of several brokers, not of one")
    if not single_broker and (directory / _META_PROPERTIES).exists():
        raise DataDirectoryError(f"{directory} holds the data of a single broker, not of several")
    if not single_broker:
        _refuse_foreign(directory)
    return [
        broker_settings(common, directory, host, port, rack, broker_id=number, brokers=len(ports))
        for number, (port, rack) in enumerate(zip(ports, racks, strict=True))
    ]


def _refuse_foreign(directory: Path) -> None:
    """Raise DataDirectoryError for a directory that holds something other than brokers' data; ignore hidden files."""
    if not directory.exists():
        return
    if not directory.is_dir():
        raise DataDirectoryError(f"{directory} is a file, not a directory")
    foreign = sorted(
        entry.name
        for entry in directory.iterdir()
        if not _CLUSTER_ENTRIES.fullmatch(entry.name) and (entry.is_dir() or not entry.name.startswith("."))
    )
    if foreign:
        raise DataDirectoryError(
            f"{directory} is not the data directory of several brokers: it holds {joined_names(foreign)}; use an empty "
            "directory, or one that does not exist yet"
        )


def broker_settings(
    common: Mapping[str, str],
    directory: Path,
    host: str,
    port: int,
    rack: str | None,
    *,
    broker_id: int,
    brokers: int,
) -> dict[str, str]:
    """Return the settings of one of `brokers` brokers; `common` takes precedence."""
    found = {"listeners": f"PLAINTEXT://{format_address(host, port)}"}
    if brokers == 1:
        found["log.dirs"] = str(directory)
    else:
        found["node.id"] = str(broker_id)
        found["log.dirs"] = str(directory / f"broker-{broker_id}")
        found["metadata.log.dir"] = str(directory / CONTROLLER)
        found |= dict.fromkeys(_INTERNAL_TOPIC_SETTINGS, str(min(brokers, _REPLICATION_FACTOR_MAX)))
    if rack is not None:
        found["broker.rack"] = rack
    return found | dict(common)
