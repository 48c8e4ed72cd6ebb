"""Two releases of kafka-python: 3.x from this environment, and 2.0.2 for versions that no current client uses."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from odradek_peers.old_clients import kafka_python_2_0_2

from compat_tests.clients.model import Abilities, Message, Record

_DRIVER = Path(__file__).parents[1] / "drivers" / "kafka_python_calls.py"
_SECONDS = 120.0


class KafkaPython:
    """The library in its own process; `api_version` restricts it to the protocol of that broker release."""

    abilities = Abilities(key_and_value_null=False, null_headers=False)

    def __init__(self, *, old: bool = False, api_version: tuple[int, ...] | None = None) -> None:
        self.name = "kafka-python-2.0.2" if old else "kafka-python"
        if api_version:
            self.name += "-as-" + ".".join(map(str, api_version))
            if api_version < (2, 1):
                self.abilities = Abilities(
                    key_and_value_null=False,
                    codecs=("none", "gzip", "snappy", "lz4"),
                    headers=api_version >= (0, 11),
                    null_headers=False,
                    sets_timestamps=api_version >= (0, 10),
                )
        self._old = old
        self._api_version = api_version

    def unsupported_reason(self) -> str | None:
        return None

    def environment(self) -> dict[str, str]:
        """Return the environment in which `import kafka` finds this release."""
        path = str(kafka_python_2_0_2()) if self._old else ""
        return {**os.environ, "PYTHONPATH": path}

    def produce(
        self, servers: str, topic: str, messages: Sequence[Message], *, codec: str = "none", acks: str = "all"
    ) -> None:
        sent = [
            {
                "value": _text(each.value),
                "key": _text(each.key),
                "headers": [(name, _text(value)) for name, value in each.headers],
                "timestamp_ms": each.timestamp_ms,
                "partition": each.partition,
            }
            for each in messages
        ]
        self._call("produce", servers, topic=topic, messages=sent, codec=codec, acks=acks)

    def consume(self, servers: str, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Record]:
        return _records(self._call("consume", servers, topic=topic, count=count, partition=partition, offset=offset))

    def consume_as_group(self, servers: str, topic: str, count: int, *, group: str) -> list[Record]:
        return _records(self._call("consume_as_group", servers, topic=topic, count=count, group=group))

    def offsets_for_times(self, servers: str, topic: str, timestamps: Sequence[int]) -> list[int | None]:
        """Return the first offset of partition 0 at or after each timestamp, None if there is none."""
        found: list[int | None] = self._call(
            "offsets_for_times", servers, topic=topic, partition=0, timestamps=list(timestamps)
        )
        return found

    def _call(self, call: str, servers: str, **command: object) -> Any:
        asked = json.dumps({"call": call, "servers": servers, "api_version": self._api_version, **command})
        done = subprocess.run(
            [sys.executable, str(_DRIVER)],
            input=asked,
            capture_output=True,
            text=True,
            env=self.environment(),
            timeout=_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{self.name} failed:\n{done.stderr[-3000:]}"
        return json.loads(done.stdout)


def _records(response: list[dict[str, Any]]) -> list[Record]:
    return [
        Record(
            each["partition"],
            each["offset"],
            each["timestamp_ms"],
            _bytes(each["key"]),
            _bytes(each["value"]),
            tuple((name, _bytes(value)) for name, value in each["headers"]),
        )
        for each in response
    ]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
