"""kcat, as Debian ships it (with an older librdkafka than confluent-kafka's)."""

import json
import shutil
import subprocess
from collections.abc import Sequence

from compat_tests.clients.model import Abilities, Message, Record

_SECONDS = 30.0


class Kcat:
    """One process per message, because headers and nulls are options of the whole run."""

    name = "kcat"
    # -Z turns empty into null, so the two cannot both be sent; its JSON output is text.
    abilities = Abilities(null_and_empty=False, null_headers=False, binary=False, sets_timestamps=False)

    def unsupported_reason(self) -> str | None:
        return None if shutil.which("kcat") else "kcat is not installed (a package of Debian; .ci/run installs it)"

    def produce(
        self, servers: str, topic: str, messages: Sequence[Message], *, codec: str = "none", acks: str = "all"
    ) -> None:
        for message in messages:
            headers = [option for name, value in message.headers for option in ("-H", f"{name}={_text(value)}")]
            # A line "key, 1f, value, 1e", because only then -Z takes an empty key or value for null.
            line = (message.key or b"") + b"\x1f" + (message.value or b"") + b"\x1e"
            _kcat(
                servers, "-P", "-t", topic, "-p", str(message.partition), "-z", codec, *headers,
                "-Z", "-K", "\\x1f", "-D", "\\x1e",
                "-X", f"acks={acks}", "-X", "message.max.bytes=16777216", stdin=line,
            )  # fmt: skip

    def consume(self, servers: str, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Record]:
        where = ["-C", "-t", topic, "-p", str(partition), "-o", str(offset)]
        return _records(_kcat(servers, *where, "-c", str(count), "-J", "-X", "fetch.message.max.bytes=16777216"))

    def consume_as_group(self, servers: str, topic: str, count: int, *, group: str) -> list[Record]:
        options = ["-X", "auto.offset.reset=earliest"]
        return _records(_kcat(servers, "-c", str(count), "-J", *options, "-G", group, topic))


def _kcat(servers: str, *arguments: str, stdin: bytes = b"") -> bytes:
    done = subprocess.run(
        ["kcat", "-q", "-b", servers, *arguments], input=stdin, capture_output=True, timeout=_SECONDS, check=False
    )
    assert done.returncode == 0, f"kcat {arguments} failed: {done.stderr.decode()[-2000:]}"
    return done.stdout


def _records(output: bytes) -> list[Record]:
    return [_record(json.loads(line)) for line in output.splitlines()]


def _record(line: dict[str, object]) -> Record:
    flat = line.get("headers") or []
    assert isinstance(flat, list)
    return Record(
        int(str(line["partition"])),
        int(str(line["offset"])),
        int(str(line["ts"])),
        _bytes(line["key"]),
        _bytes(line["payload"]),
        tuple(zip(flat[::2], map(_bytes, flat[1::2]), strict=True)),
    )


def _bytes(text: object) -> bytes | None:
    return None if text is None else str(text).encode()


def _text(data: bytes | None) -> str:
    return (data or b"").decode()
