"""The process of a `ProcessHost`: reads orders from standard input, one JSON document a line, and answers each.

Ends in order when standard input ends. Its log goes to standard error, a JSON document a line.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from odradek.hosts.host import Fault
from odradek.hosts.thread import ThreadHost
from odradek.logs import stream_logger


def main() -> None:
    # Ctrl-C goes to the whole group of the terminal; the parent decides when its broker ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    host = ThreadHost(stream_logger(sys.stderr, as_json=True))
    for line in sys.stdin:
        try:
            answer: dict[str, Any] = {"result": _carry_out(host, json.loads(line))}
        except Exception as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)
    host.stop()


def _carry_out(host: ThreadHost, order: dict[str, Any]) -> Any:
    match order.pop("do"):
        case "start":
            return host.start(**order)
        case "start broker":
            return host.start_broker(**order)
        case "stop broker":
            host.stop_broker(**order)
        case "kill broker":
            host.kill_broker(**order)
        case "reset":
            host.reset(**order)
        case "advance":
            host.advance(**order)
        case "delete old segments":
            host.delete_old_segments()
        case "clean logs":
            host.clean_logs()
        case "fault":
            host.add_fault(Fault(**order))
        case "clear faults":
            host.clear_faults()
        case unknown:
            raise ValueError(f"unknown order {unknown!r}")
    return None


if __name__ == "__main__":
    main()
