"""One distributed worker of Kafka Connect, and its REST API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from odradek_peers import RunningTool, connect_libs
from odradek_peers.processes import LOOPBACK, free_ports

from compat_tests.exactly_once.java import JavaProgram
from compat_tests.exactly_once.reader import until

_PREFIX = "connect-"
_NOT_READY = (404, 409, 500, 503)
"""Statuses of a worker that does not know the connector yet, rebalances, waits for its leader, or is starting."""


class Worker:
    """A worker that can be killed and started again; as a context manager it runs inside."""

    def __init__(self, servers: str, name: str, directory: Path) -> None:
        (self._port,) = free_ports(1)
        self._properties = directory / f"{name}.properties"
        converter = "org.apache.kafka.connect.storage.StringConverter"
        settings = {
            "bootstrap.servers": servers,
            "group.id": f"{_PREFIX}{name}",
            "listeners": f"http://{LOOPBACK}:{self._port}",
            "plugin.discovery": "service_load",
            "key.converter": converter,
            "value.converter": converter,
            **{f"{topic}.storage.topic": f"{_PREFIX}{name}-{topic}" for topic in ("config", "offset", "status")},
            **{f"{topic}.storage.replication.factor": "1" for topic in ("config", "offset", "status")},
            "offset.storage.partitions": "2",
            "status.storage.partitions": "2",
            "exactly.once.source.support": "enabled",
            "offset.flush.interval.ms": "500",
            # The group removes a killed worker soon, and does not wait for its return.
            "session.timeout.ms": "3000",
            "heartbeat.interval.ms": "500",
            "scheduled.rebalance.max.delay.ms": "0",
        }
        self._properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self.running: RunningTool

    def start(self) -> Self:
        """Start the worker and wait until it has joined its group and responds."""
        program = JavaProgram("org.apache.kafka.connect.cli.ConnectDistributed", f"{connect_libs()}/*")
        self.running = program.start(str(self._properties))
        self.until(lambda: self.ask("GET", "/connectors") is not None)
        return self

    def kill(self) -> None:
        """Kill the worker with SIGKILL."""
        self.running.kill()

    def create(self, connector: str, config: Mapping[str, str]) -> None:
        """Create a connector and wait until its only task runs."""
        self.until(lambda: self.ask("PUT", f"/connectors/{connector}/config", config) is not None)
        self.until_task(connector, "RUNNING")

    def pause(self, connector: str) -> None:
        """Pause a connector and wait until its task is paused."""
        self.ask("PUT", f"/connectors/{connector}/pause")
        self.until_task(connector, "PAUSED")

    def resume(self, connector: str) -> None:
        """Resume a paused connector."""
        self.ask("PUT", f"/connectors/{connector}/resume")

    def until_task(self, connector: str, state: str) -> None:
        """Wait until the connector's only task is in this state."""

        def in_state() -> bool:
            status = self.ask("GET", f"/connectors/{connector}/status")
            tasks = status["tasks"] if status else []
            assert not any(task["state"] == "FAILED" for task in tasks), tasks
            return [task["state"] for task in tasks] == [state]

        self.until(in_state)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send a request and return the response, or None while the worker cannot answer (`_NOT_YET`)."""
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{self._port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.loads(response.read() or b"{}")
        except urllib.error.HTTPError as refusal:
            if refusal.code not in _NOT_READY:
                raise AssertionError(f"{method} {path}: {refusal.read()!r}") from refusal
            return None
        except OSError:
            return None

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; fail if the worker ends."""
        until(condition, program=self.running)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
