"""A broker that runs out of file descriptors logs it and continues to serve."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

_LIMIT = 64
_LOOPS = {"uvloop": "", "asyncio": "sys.modules['uvloop'] = None; "}


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (_LIMIT, _LIMIT))


def _produces(bootstrap: str) -> bool:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    errors: list[object] = []
    producer.produce("t", b"v", callback=lambda error, _: errors.append(error))
    return producer.flush(20) == 0 and errors == [None]


@pytest.mark.parametrize("loop", _LOOPS)
def test_a_flood_of_connections_leaves_descriptors_for_files(loop: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = ["up", "--port", "0", "--topic", "t:8", "--data", str(tmp_path / "data"), "--log-json"]
    code = f"import sys; {_LOOPS[loop]}from odradek.cli import main; main()"
    with log.open("w") as written:
        broker = subprocess.Popen(
            [sys.executable, "-c", code, *command], stdout=subprocess.PIPE, stderr=written, text=True, preexec_fn=_limit
        )
    flood: list[socket.socket] = []
    try:
        assert broker.stdout is not None
        bootstrap = broker.stdout.readline().strip()
        host, _, port = bootstrap.rpartition(":")
        before = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        before.produce("t", b"v", partition=0)
        assert before.flush(20) == 0
        flood += [socket.create_connection((host, int(port)), timeout=10) for _ in range(2 * _LIMIT)]
        deadline = time.monotonic() + 20
        while "too few file descriptors are left" not in log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        errors: list[object] = []
        for partition in range(8):
            before.produce("t", b"v", partition=partition, callback=lambda error, _: errors.append(error))
        assert before.flush(20) == 0
        assert errors == [None] * 8, "the broker serves a client that connected before, and opens files for it"
        for connection in flood:
            connection.close()
        assert _produces(bootstrap), "new clients connect when the flood has ended"
    finally:
        for connection in flood:
            connection.close()
        broker.terminate()
        assert broker.wait(20) == 0
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert {event["level"] for event in events} == {"warning"}
    assert len(events) < 30


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("imported", [False, True])
def test_an_event_is_logged_without_a_descriptor_for_imports(imported: bool, as_json: bool) -> None:
    code = f"""if True:
        import os, sys
        from odradek.logs import stream_logger
        logger = stream_logger(sys.stderr, as_json={as_json}).bind(broker=1)
        if {imported}:
            logger.warning("imported")
        held = []
        try:
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            logger.error("disk work failed", exc_info=error, work="a b")
        for descriptor in held:
            os.close(descriptor)
        logger.warning("imported again")
    """
    done = subprocess.run(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, preexec_fn=_limit, check=True, timeout=60
    )
    lines = done.stderr.splitlines()[imported:]
    if as_json:
        first, second = (json.loads(line) for line in lines)
        assert first.pop("exception").startswith("Traceback")
        assert [sorted(event) for event in (first, second)] == [
            ["broker", "event", "level", "timestamp", "work"],
            ["broker", "event", "level", "timestamp"],
        ]
        assert (first["event"], first["level"], second["event"]) == ("disk work failed", "error", "imported again")
    else:
        assert lines[0].endswith("Z  error    disk work failed  broker=1 work='a b'")
        assert lines[1] == "Traceback (most recent call last):"
        assert lines[-2].startswith("OSError: ")
        assert lines[-1].endswith("Z  warning  imported again  broker=1")
        assert len(lines[0].split()[0]) == len(lines[-1].split()[0])
