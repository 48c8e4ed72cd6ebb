"""A broker in a child process: the same broker, where the user's own code cannot slow it down, and `kill` is kill -9.

Parent and child exchange one JSON document a line over the child's standard input and output (`child`). When the
parent dies its end of the pipe closes, and the child ends: no broker is left behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from odradek.hosts.host import Fault, LogEntry, NotRunningError, Settings

_STOP_TIMEOUT_S = 30.0
_ANSWER_TIMEOUT_S = 60.0
_LOG_ENTRIES_MAX = 10_000


class ProcessHost:
    """One child per `start`. Faults and the moved wall clock are told to each new child; where its clock of timeouts
    begins means nothing.

    A child that leaves an order without an answer for 60 s is killed: `TimeoutError`. Data stays for `start`.
    """

    def __init__(self) -> None:
        self._entries: deque[LogEntry] = deque(maxlen=_LOG_ENTRIES_MAX)
        self._faults: list[Fault] = []
        self._wall_ahead_ms = 0
        self._child: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def logs(self) -> list[LogEntry]:
        return list(self._entries)

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._running().pid

    def start(self, settings: Sequence[Settings]) -> dict[int, str]:
        if self._child is not None:
            raise RuntimeError("the cluster is running already")
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
            # Before it starts: its first record carries the moved time already.
            self._ask({"do": "advance", "wall_ms": self._wall_ahead_ms, "timeouts_ms": 0})
            for fault in self._faults:
                self._ask({"do": "fault", **asdict(fault)})
            return _by_id(self._ask({"do": "start", "settings": [dict(each) for each in settings]}))
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
                raise self._no_answer(child, "stop", _STOP_TIMEOUT_S) from None
            finally:
                self._forget(child)

    def kill(self) -> None:
        child = self._child
        if child is not None:
            child.kill()
            # An order under way, which holds the lock, ends with the child.
            with self._lock:
                if self._child is child:
                    self._forget(child)

    def start_broker(self, settings: Settings) -> dict[int, str]:
        return _by_id(self._ask({"do": "start broker", "settings": dict(settings)}))

    def stop_broker(self, broker: int) -> None:
        self._ask({"do": "stop broker", "broker": broker})

    def kill_broker(self, broker: int) -> None:
        self._ask({"do": "kill broker", "broker": broker})

    def reset(self, topics: Mapping[str, int]) -> None:
        self._running()
        self._faults.clear()
        self._wall_ahead_ms = 0
        self._ask({"do": "reset", "topics": dict(topics)})

    def advance(self, wall_ms: int, timeouts_ms: int) -> None:
        self._wall_ahead_ms += wall_ms
        if self._child is not None:
            self._ask({"do": "advance", "wall_ms": wall_ms, "timeouts_ms": timeouts_ms})

    def delete_old_segments(self) -> None:
        self._ask({"do": "delete old segments"})

    def clean_logs(self) -> None:
        self._ask({"do": "clean logs"})

    def add_fault(self, fault: Fault) -> None:
        self._faults.append(fault)
        if self._child is not None:
            self._ask({"do": "fault", **asdict(fault)})

    def clear_faults(self) -> None:
        self._faults.clear()
        if self._child is not None:
            self._ask({"do": "clear faults"})

    def _running(self) -> subprocess.Popen[str]:
        if self._child is None:
            raise NotRunningError
        return self._child

    def _ask(self, order: dict[str, Any]) -> Any:
        with self._lock:
            child = self._running()
            assert child.stdin is not None
            assert child.stdout is not None
            overdue = threading.Event()

            def give_up() -> None:
                overdue.set()
                # The end of the pipes wakes whoever writes to them or reads from them.
                child.kill()

            watchdog = threading.Timer(_ANSWER_TIMEOUT_S, give_up)
            watchdog.daemon = True
            watchdog.start()
            try:
                child.stdin.write(json.dumps(order) + "\n")
                child.stdin.flush()
                line = child.stdout.readline()
            except BrokenPipeError:
                line = ""
            finally:
                watchdog.cancel()
            if overdue.is_set() or not line:
                self._forget(child)
        if overdue.is_set():
            raise self._no_answer(child, order["do"], _ANSWER_TIMEOUT_S)
        if not line:
            raise RuntimeError(f"the broker's process ended with exit code {child.returncode}: {self._last_words()}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def _no_answer(self, child: subprocess.Popen[str], order: str, waited_s: float) -> TimeoutError:
        return TimeoutError(
            f"the broker's process {child.pid} did not answer {order!r} within {waited_s:g} s and was killed; its"
            f" output is in `Cluster.logs` and ends with: {self._last_words() or 'nothing'}"
        )

    def _last_words(self) -> str:
        return "; ".join(str(entry.get("event")) for entry in list(self._entries)[-3:])

    def _read_log(self, child: subprocess.Popen[str]) -> None:
        assert child.stderr is not None
        for line in child.stderr:
            try:
                entry = json.loads(line)
            except ValueError:
                entry = line.rstrip("\n")
            self._entries.append(entry if isinstance(entry, dict) else {"event": str(entry), "level": "error"})

    def _forget(self, child: subprocess.Popen[str]) -> None:
        child.wait(_STOP_TIMEOUT_S)
        if self._reader is not None:
            self._reader.join(_STOP_TIMEOUT_S)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._child = self._reader = None


def _by_id(addresses: Mapping[str, str]) -> dict[int, str]:
    """JSON knows only texts as keys."""
    return {int(broker): address for broker, address in addresses.items()}
