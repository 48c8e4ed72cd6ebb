"""The operations that every client under test has, and the record that all of them produce and consume."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

Headers = tuple[tuple[str, bytes | None], ...]

ALL_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Message(NamedTuple):
    """A record for a producer."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int = 0


class Record(NamedTuple):
    """A record from a consumer."""

    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def content(self) -> Message:
        """The fields of the producer, without those of the broker."""
        return Message(self.value, self.key, self.headers, None, self.partition)


@dataclass(frozen=True)
class Abilities:
    """The abilities of a client's interface; a limit here is the client's, never the broker's."""

    codecs: tuple[str, ...] = ALL_CODECS
    headers: bool = True
    null_headers: bool = True
    key_and_value_null: bool = True
    null_and_empty: bool = True
    """The client distinguishes null and empty."""
    binary: bool = True
    sets_timestamps: bool = True
    chooses_partition: bool = True


class Client(Protocol):
    """One kind of client. Every call makes a producer or consumer, uses it and closes it."""

    name: str
    abilities: Abilities

    def unsupported_reason(self) -> str | None:
        """Return why this client cannot run on this machine, or None."""

    def produce(
        self, servers: str, topic: str, messages: Sequence[Message], *, codec: str = "none", acks: str = "all"
    ) -> None:
        """Send all messages in order and return when they are acknowledged (when they are sent, with acks 0)."""

    def consume(self, servers: str, topic: str, count: int, *, partition: int = 0, offset: int = 0) -> list[Record]:
        """Assign one partition by hand, begin at `offset`, return the next `count` records."""

    def consume_as_group(self, servers: str, topic: str, count: int, *, group: str) -> list[Record]:
        """Subscribe as a group (from the earliest where nothing is committed), read `count` records, commit, leave."""
