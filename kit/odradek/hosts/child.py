"""The child process of a `ProcessHost`: reads commands from standard input, a JSON document per line, and replies.

Stops the brokers when standard input ends. Writes the brokers' log to standard error, a JSON document per line.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from odradek.exceptions import (
    AlreadyRunningError,
    DataDirectoryError,
    NotRunningError,
    SettingsError,
)
from odradek.hosts.host import Fault
from odradek.hosts.thread import ThreadHost
from odradek.logs import stream_logger

EXCEPTIONS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (AlreadyRunningError, DataDirectoryError, NotRunningError, SettingsError, ValueError, OSError)
}
"""The exceptions that the parent raises again, by name; it raises BrokerProcessError for any other."""


def main() -> None:
    # A terminal sends Ctrl-C to the child, too, but the parent decides when the brokers stop.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host = ThreadHost(stream_logger(sys.stderr, as_json=True))
    for line in sys.stdin:
        try:
            reply: dict[str, Any] = {"result": _apply(host, json.loads(line))}
        except Exception as error:
            reply = {"error": _description(error)}
        print(json.dumps(reply), flush=True)
    host.stop()


def _description(error: Exception) -> dict[str, Any]:
    kind = next((base.__name__ for base in type(error).__mro__ if base.__name__ in EXCEPTIONS), None)
    found: dict[str, Any] = {"kind": kind, "text": str(error) or type(error).__name__}
    if isinstance(error, OSError) and error.errno is not None:
        found["errno"], found["text"] = error.errno, str(error.strerror)
    return found


def _apply(host: ThreadHost, command: dict[str, Any]) -> Any:
    match command.pop("do"):
        case "start":
            return host.start(**command)
        case "start broker":
            return host.start_broker(**command)
        case "stop broker":
            host.stop_broker(**command)
        case "kill broker":
            host.kill_broker(**command)
        case "reset":
            host.reset(**command)
        case "advance":
            host.advance(**command)
        case "delete old segments":
            host.delete_old_segments()
        case "clean logs":
            host.clean_logs()
        case "fault":
            host.add_fault(Fault(**command))
        case "clear faults":
            host.clear_faults()
        case unknown:
            raise ValueError(f"unknown command {unknown!r}")
    return None


if __name__ == "__main__":
    main()
