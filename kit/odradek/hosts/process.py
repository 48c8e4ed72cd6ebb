"""A host in a child process: the brokers do not share the user's interpreter, and `kill` is kill -9.

Parent and child exchange a JSON document per line over the child's standard input and output (`child`). When the parent
dies, its end of the pipe closes and the child exits, so no broker is left behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from odradek.exceptions import AlreadyRunningError, BrokerProcessError, NotRunningError
from odradek.hosts.child import EXCEPTIONS
from odradek.hosts.host import BrokerSettings, Fault, LogEntry
from odradek.logs import CapturedLog
from odradek_broker.logger import Logger

_STOP_TIMEOUT_S = 30.0
_REPLY_TIMEOUT_S = 60.0


class ProcessHost:
    """A host with one child process per `start`. Each new child gets the faults and the offset of the wall clock. The
    offset of the clock of timeouts ends with a child, because only differences of that clock mean something.

    A child that does not reply to a command within 60 s is killed, and the call raises TimeoutError. The data stay for
    the next `start`.
    """

    def __init__(self) -> None:
        self._log = CapturedLog()
        self._faults: list[Fault] = []
        self._wall_offset_ms = 0
        self._child: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def logs(self) -> list[LogEntry]:
        return self._log.entries

    @property
    def logger(self) -> Logger:
        return self._log.logger

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return self._running_child().pid

    def start(self, settings: Sequence[BrokerSettings]) -> dict[int, str]:
        if self._child is not None:
            raise AlreadyRunningError
        self._child = subprocess.Popen(
            [sys.executable, "-m", "odradek.hosts.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._reader = threading.Thread(target=self._read_log, args=(self._child,), name="odradek log", daemon=True)
        self._reader.start()
        try:
            # Before the brokers start, because their first record already has a timestamp.
            self._send({"do": "advance", "wall_ms": self._wall_offset_ms, "timeouts_ms": 0})
            for fault in self._faults:
                self._send({"do": "fault", **asdict(fault)})
            return _by_id(self._send({"do": "start", "settings": [dict(each) for each in settings]}))
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        with self._lock:
            child = self._child
            if child is None:
                return
            assert child.stdin is not None
            child.stdin.close()
            try:
                child.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                child.kill()
                raise self._no_reply(child, "stop", _STOP_TIMEOUT_S) from None
            finally:
                self._release(child)

    def kill(self) -> None:
        child = self._child
        if child is not None:
            child.kill()
            # A command in progress holds the lock until the child is gone.
            with self._lock:
                if self._child is child:
                    self._release(child)

    def start_broker(self, settings: BrokerSettings) -> dict[int, str]:
        return _by_id(self._send({"do": "start broker", "settings": dict(settings)}))

    def stop_broker(self, broker: int) -> None:
        self._send({"do": "stop broker", "broker": broker})

    def kill_broker(self, broker: int) -> None:
        self._send({"do": "kill broker", "broker": broker})

    def reset(self, topics: Mapping[str, int]) -> None:
        self._running_child()
        self._faults.clear()
        self._wall_offset_ms = 0
        self._send({"do": "reset", "topics": dict(topics)})

    def advance(self, wall_ms: int, timeouts_ms: int) -> None:
        self._wall_offset_ms += wall_ms
        if self._child is not None:
            self._send({"do": "advance", "wall_ms": wall_ms, "timeouts_ms": timeouts_ms})

    def delete_old_segments(self) -> None:
        self._send({"do": "delete old segments"})

    def clean_logs(self) -> None:
        self._send({"do": "clean logs"})

    def add_fault(self, fault: Fault) -> None:
        self._faults.append(fault)
        if self._child is not None:
            self._send({"do": "fault", **asdict(fault)})

    def clear_faults(self) -> None:
        self._faults.clear()
        if self._child is not None:
            self._send({"do": "clear faults"})

    def _running_child(self) -> subprocess.Popen[str]:
        if self._child is None:
            raise NotRunningError
        return self._child

    def _send(self, command: dict[str, Any]) -> Any:
        with self._lock:
            child = self._running_child()
            assert child.stdin is not None
            assert child.stdout is not None
            overdue = threading.Event()

            def give_up() -> None:
                overdue.set()
                # The pipes of a dead child close, which ends the write or read below.
                child.kill()

            watchdog = threading.Timer(_REPLY_TIMEOUT_S, give_up)
            watchdog.daemon = True
            watchdog.start()
            try:
                child.stdin.write(json.dumps(command) + "\n")
                child.stdin.flush()
                line = child.stdout.readline()
            except BrokenPipeError:
                line = ""
            finally:
                watchdog.cancel()
            if overdue.is_set() or not line:
                self._release(child)
        if overdue.is_set():
            raise self._no_reply(child, command["do"], _REPLY_TIMEOUT_S)
        if not line:
            raise BrokerProcessError(
                f"the broker's process ended with exit code {child.returncode}; its last log events are:"
                f" {self._last_events()}"
            )
        reply = json.loads(line)
        if "error" in reply:
            raise _exception(reply["error"])
        return reply["result"]

    def _no_reply(self, child: subprocess.Popen[str], command: str, waited_s: float) -> TimeoutError:
        return TimeoutError(
            f"the broker's process {child.pid} did not reply to {command!r} within {waited_s:g} s and was killed;"
            f" `Cluster.logs` has its log, which ends with: {self._last_events()}"
        )

    def _last_events(self) -> str:
        return "; ".join(str(entry.get("event")) for entry in self._log.entries[-3:]) or "no event"

    def _read_log(self, child: subprocess.Popen[str]) -> None:
        assert child.stderr is not None
        for line in child.stderr:
            try:
                entry = json.loads(line)
            except ValueError:
                entry = line.rstrip("\n")
            self._log.keep(entry if isinstance(entry, dict) else {"event": str(entry), "level": "error"})

    def _release(self, child: subprocess.Popen[str]) -> None:
        child.wait(_STOP_TIMEOUT_S)
        if self._reader is not None:
            self._reader.join(_STOP_TIMEOUT_S)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._child = self._reader = None


def _exception(error: Mapping[str, Any]) -> Exception:
    """Return the exception that the child describes."""
    kind = EXCEPTIONS.get(error["kind"] or "", BrokerProcessError)
    if kind is OSError and "errno" in error:
        return OSError(error["errno"], error["text"])
    made = kind.__new__(kind)
    # Without __init__, because the text is complete, and some of the classes make it from other arguments.
    made.args = (error["text"],)
    return made


def _by_id(addresses: Mapping[str, str]) -> dict[int, str]:
    """Return the addresses by broker id: the keys in JSON are strings."""
    return {int(broker): address for broker, address in addresses.items()}
