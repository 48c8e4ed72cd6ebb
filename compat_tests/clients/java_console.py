"""The console producer and console consumer of a given Kafka release."""

from collections.abc import Sequence

from odradek_peers import JavaTools

from compat_tests.clients.model import Abilities, Headers, Message, Record

_NULL = "<null>"


class JavaConsole:
    """Text input and output: headers, key and value of a record on one line, separated by tabs."""

    # The partitioner keeps the keyless records of a run in one partition, so these tests use one-partition topics.
    abilities = Abilities(binary=False, sets_timestamps=False, chooses_partition=False)

    def __init__(self, version: str) -> None:
        self.name = f"java-console-{version}"
        self._tools = JavaTools(version)
        # 4.x renamed the options and warns, on standard output, about the old ones.
        new = version.startswith("4.")
        self._reader_option, self._formatter_option = (
            ("--reader-property", "--formatter-property") if new else ("--property", "--property")
        )
        self._producer_option, self._consumer_option = (
            ("--command-property", "--command-property") if new else ("--producer-property", "--consumer-property")
        )

    def unsupported_reason(self) -> str | None:
        return None

    def produce(
        self, servers: str, topic: str, messages: Sequence[Message], *, codec: str = "none", acks: str = "all"
    ) -> None:
        assert all(message.partition == 0 for message in messages)
        options = [
            "parse.key=true", "parse.headers=true", f"null.marker={_NULL}",
        ]  # fmt: skip
        lines = "".join(
            f"{_headers_text(message.headers)}\t{_text(message.key)}\t{_text(message.value)}\n" for message in messages
        )
        self._tools.run(
            "kafka-console-producer", "--bootstrap-server", servers, "--topic", topic,
            "--compression-codec", codec, "--request-required-acks", acks,
            self._producer_option, "max.request.size=16777216",
            *(part for option in options for part in (self._reader_option, option)),
            stdin=lines,
        )  # fmt: skip

    def consume(self, servers: str, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Record]:
        return self._consume(servers, topic, count, "--partition", str(partition), "--offset", str(offset))

    def consume_as_group(self, servers: str, topic: str, count: int, *, group: str) -> list[Record]:
        return self._consume(servers, topic, count, "--group", group, "--from-beginning")

    def _consume(self, servers: str, topic: str, count: int, *where: str) -> list[Record]:
        options = [f"null.literal={_NULL}"] + [
            f"print.{each}=true" for each in ("timestamp", "partition", "offset", "headers", "key", "value")
        ]
        output = self._tools.run(
            "kafka-console-consumer", "--bootstrap-server", servers, "--topic", topic, "--max-messages", str(count),
            "--timeout-ms", "30000", self._consumer_option, "max.partition.fetch.bytes=16777216", *where,
            *(part for option in options for part in (self._formatter_option, option)),
        )  # fmt: skip
        return [_record(line) for line in output.split("\n") if line]


def _record(line: str) -> Record:
    timestamp, partition, offset, headers, key, value = line.split("\t")
    return Record(
        int(partition.removeprefix("Partition:")),
        int(offset.removeprefix("Offset:")),
        int(timestamp.rpartition(":")[2]),
        _bytes(key),
        _bytes(value),
        _headers(headers),
    )


def _headers(text: str) -> Headers:
    if text == "NO_HEADERS":
        return ()
    pairs = (each.split(":", 1) for each in text.split(","))
    return tuple((name, _bytes(value)) for name, value in pairs)


def _headers_text(headers: Headers) -> str:
    return ",".join(f"{name}:{_text(value)}" for name, value in headers) if headers else _NULL


def _bytes(text: str) -> bytes | None:
    return None if text == _NULL else text.encode()


def _text(data: bytes | None) -> str:
    return _NULL if data is None else data.decode()
