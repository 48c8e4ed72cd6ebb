"""The public API: the exceptions that it raises are in its docstrings and in the package `odradek`."""

from __future__ import annotations

import builtins
import inspect
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import odradek
from odradek import (
    AlreadyRunningError,
    Cluster,
    ClusterFactory,
    DataDirectoryError,
    ErrorCode,
    Faults,
    NotRunningError,
    SettingsError,
    pytest_plugin,
)
from odradek.containers import OdradekContainer
from odradek_wire import codec

THREAD_AND_PROCESS = pytest.mark.parametrize("process", [False, True], ids=["thread", "process"])


def public_docstrings() -> dict[str, str]:
    parts: dict[str, Any] = {"kafka": pytest_plugin.kafka, "kafka_cluster": pytest_plugin.kafka_cluster}
    for cls in (Cluster, ClusterFactory, Faults, OdradekContainer):
        parts[cls.__name__] = cls
        for name, part in vars(cls).items():
            if not name.startswith("_") and (inspect.isfunction(part) or isinstance(part, property)):
                parts[f"{cls.__name__}.{name}"] = part
    return {name: inspect.getdoc(part) or "" for name, part in parts.items()}


@pytest.mark.parametrize("name", public_docstrings())
def test_a_docstring_names_only_exceptions_that_a_user_can_import(name: str) -> None:
    for exception in re.findall(r"\w+Error\b", public_docstrings()[name]):
        assert exception in odradek.__all__ or hasattr(builtins, exception), exception


def test_every_exported_name_can_be_imported() -> None:
    assert all(getattr(odradek, name) is not None for name in odradek.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        odradek.nothing  # noqa: B018


def test_the_codec_exports_the_exceptions_of_its_docstrings() -> None:
    functions = [getattr(codec, name) for name in codec.__all__ if name.startswith(("encode", "decode", "limited"))]
    named = {name for function in functions for name in re.findall(r"\w+Error\b", function.__doc__ or "")}
    assert named == {"DecodeError", "EncodeError", "TooManyElementsError", "UnsupportedVersionError"}
    assert named <= set(codec.__all__)
    assert all("Raises" in (function.__doc__ or "") for function in functions)


def test_kafka_cluster_has_the_typed_arguments_of_cluster() -> None:
    factory, cluster = (
        list(inspect.signature(function).parameters.values())[1:]
        for function in (ClusterFactory.__call__, Cluster.__init__)
    )
    assert factory == cluster


@THREAD_AND_PROCESS
def test_a_running_cluster_or_broker_is_not_started_again(process: bool) -> None:
    with Cluster(brokers=2, process=process) as cluster:
        with pytest.raises(AlreadyRunningError, match="the cluster is already running"):
            cluster.start()
        with pytest.raises(AlreadyRunningError, match="broker 1 is already running"):
            cluster.start(1)


@THREAD_AND_PROCESS
@pytest.mark.parametrize("brokers", [1, 2])
def test_a_data_directory_of_something_else_is_refused(tmp_path: Path, brokers: int, process: bool) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(DataDirectoryError, match=r"holds notes\.txt"):
        Cluster(brokers=brokers, data=tmp_path, process=process).start()


@THREAD_AND_PROCESS
def test_a_data_directory_in_use_is_refused(tmp_path: Path, process: bool) -> None:
    with Cluster(data=tmp_path), pytest.raises(DataDirectoryError, match=re.escape(str(tmp_path))):
        Cluster(data=tmp_path, process=process).start()


@THREAD_AND_PROCESS
def test_a_port_in_use_is_an_os_error_with_its_number(process: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(OSError, match="in use") as raised:
            Cluster(port=taken.getsockname()[1], process=process).start()
        assert raised.value.errno is not None


@THREAD_AND_PROCESS
def test_settings_that_cannot_be_served_are_a_value_error(process: bool) -> None:
    with pytest.raises(ValueError, match=r"advertised\.listeners: "):
        Cluster(config={"advertised.listeners": "OTHER://localhost:1"}, process=process).start()


@pytest.mark.parametrize(
    "call",
    [
        Cluster.reset,
        Cluster.clean_logs,
        Cluster.delete_old_segments,
        lambda cluster: cluster.bootstrap_servers,
        lambda cluster: cluster.create_topic("t"),
        lambda cluster: cluster.wait_for_group("g"),
    ],
)
@THREAD_AND_PROCESS
def test_a_cluster_that_was_never_started_is_not_running(call: Callable[[Cluster], object], process: bool) -> None:
    with pytest.raises(NotRunningError, match=r"^the cluster is not running$"):
        call(Cluster(process=process))


@THREAD_AND_PROCESS
def test_a_broker_that_has_ended_by_itself_is_not_running(process: bool) -> None:
    with Cluster(brokers=2, process=process) as cluster:
        # As after the failure of its last disk, which `Cluster` does not notice.
        cluster._host.kill_broker(1)
        for call in (cluster.stop, cluster.kill):
            with pytest.raises(NotRunningError, match=r"^broker 1 is not running$"):
                call(1)


def test_a_value_that_kafka_refuses_is_a_settings_error() -> None:
    with pytest.raises(SettingsError, match="Invalid value many for configuration num"):
        Cluster(config={"num.partitions": "many"})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda faults: faults.drop("Send", when="request"), "api must be the name of a Kafka API.*got 'Send'"),
        (lambda faults: faults.drop("Fetch", when="now"), "when must be 'request' or 'response', got 'now'"),
        (lambda faults: faults.drop("Fetch", when="request", times=0), "times must be at least 1, got 0"),
        (lambda faults: faults.delay("Fetch", -1), "ms must be at least 0, got -1"),
        (lambda faults: faults.error("Fetch", "NO_SUCH_ERROR"), "error must be one of.*got 'NO_SUCH_ERROR'"),
        (lambda faults: faults.error("Fetch", 4711), "error must be one of.*got 4711"),
    ],
)
def test_an_invalid_fault_is_a_value_error(call: Callable[[Faults], None], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(Cluster().faults)


def test_a_fault_takes_an_error_code_or_its_name() -> None:
    faults = Cluster().faults
    faults.error("Fetch", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    faults.error("Fetch", "NOT_LEADER_OR_FOLLOWER")
