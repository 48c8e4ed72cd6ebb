"""Records of every shape, with every codec, written by every client and read by every other."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from compat_tests.clients import ALL_CODECS, CLIENTS, LIBRARIES, OLD_PROTOCOLS, Abilities, Client, Message
from compat_tests.conftest import create_topic

# Text, because the command-line clients read and print text.
_SHAPES = (
    Message(b"plain"),
    Message(b"with a key", b"key"),
    Message(None, b"tombstone"),
    Message(None),
    Message(b"", b""),
    Message("naïve — Ωμέγα 🧵".encode(), "ключ".encode()),
    Message(b"one header", b"k", (("name", b"value"),)),
    Message(b"repeated and empty headers", b"k", (("name", b"1"), ("name", b"2"), ("empty", b""))),
    Message(b"null header", None, (("nothing", None),)),
    Message(b"repetitive " * 500, b"compressible"),
)

_BINARY = (
    Message(bytes(range(256)), b"\x00\xff"),
    Message(b"\n\t\r\x00", b"\t", (("ünïcode", bytes(range(256))),)),
    Message(b"", b"\x00" * 1000, (("", b"a header's name may be empty"),)),
)


def _shapes(abilities: Abilities) -> list[Message]:
    def expressible(message: Message) -> bool:
        values = [value for _, value in message.headers]
        return (
            (abilities.headers or not message.headers)
            and (abilities.null_headers or None not in values)
            and (abilities.key_and_value_null or (message.key, message.value) != (None, None))
            and (abilities.null_and_empty or b"" not in (message.key, message.value))
        )

    return [message for message in _SHAPES if expressible(message)]


@dataclass
class _Written:
    """A topic with records of all clients, and the messages, each with the names of its client and codec."""

    topic: str
    messages: list[tuple[str, Message]]


_numbers = itertools.count()


@pytest.fixture(scope="module")
def written(servers: str) -> _Written:
    """Write all record shapes that each client supports, with every codec that it supports."""
    # xdist may run tests of other modules in between, and this fixture then runs once more on the same servers.
    topic = create_topic(servers, f"all-shapes-{next(_numbers)}")
    messages: list[tuple[str, Message]] = []
    for client in CLIENTS:
        if client.unsupported_reason() is None:
            shapes = _shapes(client.abilities)
            for codec in client.abilities.codecs:
                client.produce(servers, topic, shapes, codec=codec)
                messages += ((f"{client.name}, {codec}", shape) for shape in shapes)
    return _Written(topic, messages)


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_every_client_reads_what_all_clients_wrote_with_all_codecs(
    client: Client, written: _Written, servers: str
) -> None:
    records = client.consume(servers, written.topic, len(written.messages))

    assert [record.offset for record in records] == list(range(len(written.messages)))
    writers = [writer for writer, _ in written.messages]
    assert list(zip(writers, (record.content for record in records), strict=True)) == written.messages


@pytest.mark.parametrize("codec", ALL_CODECS)
@pytest.mark.parametrize("client", LIBRARIES, indirect=True)
def test_binary_keys_values_and_headers_are_unchanged(client: Client, codec: str, topic: str, servers: str) -> None:
    client.produce(servers, topic, _BINARY, codec=codec)

    records = client.consume(servers, topic, len(_BINARY))

    assert [(record.offset, record.content) for record in records] == list(enumerate(_BINARY))


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize("client", LIBRARIES, indirect=True)
def test_records_arrive_with_every_kind_of_acknowledgement(client: Client, acks: str, topic: str, servers: str) -> None:
    messages = [Message(b"%d" % number) for number in range(100)]

    client.produce(servers, topic, messages, acks=acks)

    assert [record.content for record in client.consume(servers, topic, 100)] == messages


@pytest.mark.parametrize("client", CLIENTS, indirect=True)
def test_a_record_of_ten_megabytes_is_produced_and_consumed(
    client: Client, make_topic: Callable[..., str], servers: str
) -> None:
    topic = make_topic(config={"max.message.bytes": str(11 * 1024 * 1024)})
    big = Message(b"0123456789abcdef" * (10 * 1024 * 1024 // 16), b"big")

    LIBRARIES[0].produce(servers, topic, [Message(b"before")])
    client.produce(servers, topic, [big])
    LIBRARIES[0].produce(servers, topic, [Message(b"after")])

    before, seen, after = (record.content for record in client.consume(servers, topic, 3))
    assert (before.value, after.value) == (b"before", b"after")
    assert seen.key == b"big"
    # Without pytest's comparison, which would print ten megabytes.
    assert seen.value is not None
    assert big.value is not None
    assert len(seen.value) == len(big.value)
    assert bool(seen.value == big.value), "the value of ten megabytes has changed"


@pytest.mark.parametrize("client", OLD_PROTOCOLS, indirect=True)
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_an_old_client_reads_and_writes_its_codecs(
    client: Client, codec: str, topic: str, servers: str, broker_name: str
) -> None:
    if broker_name == "kafka-4.3.0":
        pytest.skip("Kafka 4.0 removed the protocol versions of these clients")
    messages = [each for each in _shapes(client.abilities) if not each.headers or client.abilities.headers]

    client.produce(servers, topic, messages, codec=codec)

    assert [record.content for record in client.consume(servers, topic, len(messages))] == messages


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
@pytest.mark.parametrize("client", OLD_PROTOCOLS, indirect=True)
def test_an_old_client_reads_records_of_a_new_one(
    client: Client, codec: str, topic: str, servers: str, broker_name: str
) -> None:
    if broker_name == "kafka-4.3.0":
        pytest.skip("Kafka 4.0 removed the protocol versions of these clients")
    messages = _shapes(client.abilities)

    LIBRARIES[0].produce(servers, topic, messages, codec=codec)

    assert [record.content for record in client.consume(servers, topic, len(messages))] == messages
