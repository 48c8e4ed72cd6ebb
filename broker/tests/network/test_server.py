"""The server over real sockets: framing, order, limits, faults, shutdown."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
from broker.tests.alone import Node
from broker.tests.manual_clock import ManualClock

from odradek_broker.network.interceptors import Delay, Disconnect, Drop, Fail
from odradek_broker.security.authorizer import AllowAll
from odradek_wire.errors import ErrorCode
from odradek_wire.frames import encode_request
from odradek_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek_wire.messages.fetch import FetchRequest
from odradek_wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse

on_each_loop = pytest.mark.asyncio(loop_factories=["asyncio", "uvloop"])
METADATA = MetadataRequest([])


def received_apis(node: Node) -> Any:
    """Return the list of API keys of the requests that the node receives, which an interceptor fills."""
    api_keys: list[int] = []
    node.broker.interceptors.before_handle.append(lambda ctx, request: api_keys.append(ctx.api_key))
    return api_keys


async def until(condition: Callable[[], bool]) -> None:
    """Let the event loop run until the condition holds."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


@on_each_loop
async def test_responses_to_pipelined_requests_come_in_order(client: Any) -> None:
    sent = [client.send(METADATA, version) for version in (1, 9, 12, 4, 7, 13) for _ in range(20)]
    received = []
    for version in (1, 9, 12, 4, 7, 13):
        for _ in range(20):
            correlation_id, _ = await client.receive(MetadataResponse, version)
            received.append(correlation_id)
    assert received == sent


@on_each_loop
async def test_a_request_may_arrive_byte_by_byte(client: Any) -> None:
    frame = encode_request(METADATA, 9, 7, "slow")
    for byte in struct.pack(">i", len(frame)) + frame:
        client.writer.write(bytes((byte,)))
        await client.writer.drain()
        await asyncio.sleep(0)
    correlation_id, response = await client.receive(MetadataResponse, 9)
    assert (correlation_id, len(response.brokers)) == (7, 1)


@on_each_loop
async def test_requests_larger_than_any_buffer_are_read_whole(client: Any, make_batch: Callable[..., bytes]) -> None:
    await client.create_topic("large", max_message_bytes="20000000")
    for size in (300_000, 1_500_000, 10_000_000, 10):
        answer = await client.produce("large", make_batch(b"x" * size))
        assert answer.error_code == ErrorCode.NONE


@on_each_loop
async def test_requests_behind_a_waiting_request_are_handled_after_it(client: Any) -> None:
    await client.create_topic("t")
    fetch = FetchRequest(
        max_wait_ms=50,
        min_bytes=1,
        topics=[FetchRequest.FetchTopic("t", partitions=[FetchRequest.FetchPartition(0, partition_max_bytes=1000)])],
    )
    first = client.send(fetch, 11)
    others = [client.send(METADATA, 9) for _ in range(3000)]
    frame = await client.receive_frame()
    assert struct.unpack_from(">i", frame)[0] == first
    received = [(await client.receive(MetadataResponse, 9))[0] for _ in others]
    assert received == others


@pytest.mark.parametrize("size", [-1, 0, 5, 101, 2**31 - 1])
async def test_a_request_with_an_impossible_size_closes_the_connection(
    start_node: Any, connect: Any, size: int
) -> None:
    node = await start_node(socket_request_max_bytes="100")
    broken, healthy = await connect(node), await connect(node)
    broken.writer.write(struct.pack(">i", size) + b"\0\3\0\1\0\0\0\1\0\0" + b"\0" * 120)
    assert await broken.is_closed_by_broker()
    assert (await healthy.ask(METADATA, 1)).brokers != []


@pytest.mark.parametrize(
    "frame",
    [
        b"\x00\x03\x00\x09\x00\x00\x00\x01\x00\x05ab",
        b"\x00\x03\x00\x09\x00\x00\x00\x01\xff\xff\x00\xff\xff\xff\xff\x0f",
        b"\x00\x03\x00\x01\x00\x00\x00\x01\xff\xff\x7f\xff\xff\xff",
        b"\x00\x03\x00\x63\x00\x00\x00\x01\xff\xff\x00",
        b"\x03\xe7\x00\x00\x00\x00\x00\x01\xff\xff\x00",
        b"\x00\x00\x00\x07\x00\x00\x00\x01\xff\xff",
    ],
    ids=["cut client id", "tags without end", "absurd count", "unknown version", "unknown api", "no body"],
)
async def test_a_malformed_request_closes_its_connection_only(node: Node, connect: Any, frame: bytes) -> None:
    broken, healthy = await connect(node), await connect(node)
    broken.send_frame(frame)
    assert await broken.is_closed_by_broker()
    assert (await healthy.ask(METADATA, 1)).brokers != []


async def test_an_unserved_api_closes_the_connection_and_is_logged(
    start_node: Any, connect: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"9999 v1": 9999 << 16 | 1, "METADATA v99": MetadataRequest.API_KEY << 16 | 99}
    for number, (api, key_and_version) in enumerate(asked.items()):
        node = await start_node(data=str(number))
        client = await connect(node)
        client.send_frame(struct.pack(">Iih", key_and_version, 1, 3) + b"its")
        assert await client.is_closed_by_broker()
        (line,) = [line for line in capsys.readouterr().out.splitlines() if "not served" in line]
        assert all(fact in line for fact in (api, "client_id=its", "client=127.0.0.1:"))


async def test_a_client_id_is_cut_at_200_characters_in_the_log(
    node: Node, client: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    client.send_frame(struct.pack(">Iih", 9999 << 16, 1, 31_000) + b"x" * 31_000)
    assert await client.is_closed_by_broker()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "not served" in line]
    assert "x" * 200 + "… (31000 characters)" in line
    assert "x" * 201 not in line


async def test_a_flood_of_bad_requests_is_one_line_and_one_with_their_count(
    node: Node, connect: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(50):
        client = await connect(node)
        client.send_frame(struct.pack(">Iih", 9999 << 16, 1, -1))
        assert await client.is_closed_by_broker()
    lines: list[str] = []
    async with asyncio.timeout(10):
        while sum(int(found[1]) for found in re.finditer(r"\bcount=(\d+)", "\n".join(lines))) + 1 < 50:
            await asyncio.sleep(0.01)
            lines += [line for line in capsys.readouterr().out.splitlines() if "not served" in line]
    assert "count=" not in lines[0]
    assert "client=127.0.0.1:" in lines[-1]
    assert len(lines) < 10


@pytest.mark.parametrize(
    ("greeting", "event", "setting"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 20, "TLS handshake", "security.protocol"),
        (b"\x16\x03\x01\x02", "TLS handshake", "security.protocol"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP request", "bootstrap.servers"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP request", "bootstrap.servers"),
    ],
)
async def test_the_log_names_a_tls_or_http_greeting_and_the_setting_to_change(
    node: Node, client: Any, capsys: pytest.CaptureFixture[str], greeting: bytes, event: str, setting: str
) -> None:
    client.writer.write(greeting)
    assert await client.is_closed_by_broker()
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "closing the connection" in line]
    assert event in line
    assert setting in line
    assert "listener=PLAINTEXT" in line


async def test_bytes_after_a_request_are_ignored(client: Any) -> None:
    # librdkafka sends such bytes after its Metadata v13 for all topics; Kafka ignores them, too.
    client.send_frame(encode_request(METADATA, 9, 3, "c") + b"\x01\x00\x00")
    correlation_id, response = await client.receive(MetadataResponse, 9)
    assert (correlation_id, len(response.brokers)) == (3, 1)


async def test_tagged_fields_in_a_request_header_are_skipped(client: Any) -> None:
    body = encode_request(METADATA, 9, 3, "c")
    header = 2 + 2 + 4 + 2 + 1
    assert body[header] == 0
    client.send_frame(body[:header] + b"\x01\x05\x03abc" + body[header + 1 :])
    correlation_id, response = await client.receive(MetadataResponse, 9)
    assert (correlation_id, len(response.brokers)) == (3, 1)


class BrokenAuthorizer(AllowAll):
    """An authorizer with a bug."""

    allows_everything = False

    def allows(self, *_: Any) -> bool:
        raise RuntimeError("a bug")


async def test_an_exception_of_a_handler_is_unknown_server_error(client: Any, node: Node) -> None:
    request = MetadataRequest([MetadataRequest.MetadataRequestTopic(name="t")], allow_auto_topic_creation=False)
    sound, node.broker.authorizer = node.broker.authorizer, BrokenAuthorizer()
    response = await client.ask(request, 12)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    node.broker.authorizer = sound
    response = await client.ask(request, 12)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


# -- faults -----------------------------------------------------------------------------------------------------------


async def test_an_interceptor_delays_a_request_on_the_clock_of_timeouts(start_node: Any, connect: Any) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock)
    delayed, other = await connect(node), await connect(node)
    node.broker.interceptors.before_handle.append(lambda ctx, request: Delay(1000) if ctx.client_id == "slow" else None)
    sent = [delayed.send(METADATA, 9, "slow"), delayed.send(METADATA, 9, "fast")]
    assert (await other.ask(METADATA, 9)).brokers != []
    clock.advance_timeouts(999)
    assert (await other.ask(METADATA, 9)).brokers != []
    assert len(delayed.reader._buffer) == 0
    clock.advance_timeouts(1)
    assert [(await delayed.receive(MetadataResponse, 9))[0] for _ in sent] == sent


async def test_a_delayed_produce_keeps_its_records(
    start_node: Any, connect: Any, make_batch: Callable[..., bytes], make_produce: Callable[..., ProduceRequest]
) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock)
    delayed, other = await connect(node), await connect(node)
    await other.create_topic("t")
    api_keys = received_apis(node)
    node.broker.interceptors.before_handle.append(lambda ctx, request: Delay(10) if ctx.client_id == "slow" else None)
    delayed.send(make_produce("t", make_batch(b"delayed", timestamp=clock.wall_ms())), 9, "slow")
    await until(lambda: 0 in api_keys)
    await other.ask(METADATA, 9)
    clock.advance_timeouts(10)
    _, response = await delayed.receive(ProduceResponse, 9)
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert b"delayed" in node.broker.partitions.get("t", 0).log.read(0, 1000).tobytes()


async def test_an_interceptor_fails_a_request_before_or_after_its_handler(client: Any, node: Node) -> None:
    request = MetadataRequest([MetadataRequest.MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    before = node.broker.interceptors.before_handle
    before.append(lambda ctx, request: Fail(ErrorCode.REQUEST_TIMED_OUT))
    response = await client.ask(request, 12)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert "t" not in node.broker.image.topics
    before.clear()
    node.broker.interceptors.before_write.append(lambda ctx, request, response: Fail(ErrorCode.NETWORK_EXCEPTION))
    response = await client.ask(request, 12)
    assert [topic.error_code for topic in response.topics] == [ErrorCode.NETWORK_EXCEPTION]
    assert "t" in node.broker.image.topics


@pytest.mark.parametrize("point", ["before_handle", "before_write"])
async def test_an_interceptor_drops_a_request_or_its_response(client: Any, node: Node, point: str) -> None:
    dropped = client.send(METADATA, 9, "dropped")
    await client.receive(MetadataResponse, 9)
    getattr(node.broker.interceptors, point).append(lambda ctx, *rest: Drop() if ctx.client_id == "dropped" else None)
    client.send(METADATA, 9, "dropped")
    answered = client.send(METADATA, 9, "kept")
    correlation_id, _ = await client.receive(MetadataResponse, 9)
    assert correlation_id == answered != dropped


@pytest.mark.parametrize("point", ["before_handle", "before_write"])
async def test_an_interceptor_disconnects(client: Any, node: Node, point: str) -> None:
    getattr(node.broker.interceptors, point).append(lambda *rest: Disconnect())
    client.send(METADATA, 9)
    assert await client.is_closed_by_broker()


# -- limits -----------------------------------------------------------------------------------------------------------


@on_each_loop
async def test_above_max_connections_a_client_waits_for_a_disconnection(start_node: Any, connect: Any) -> None:
    node = await start_node(max_connections="1")
    first = await connect(node)
    assert (await first.ask(METADATA, 1)).brokers != []
    second = await connect(node)
    sent = second.send(METADATA, 1)
    assert (await first.ask(METADATA, 1)).brokers != []
    assert len(second.reader._buffer) == 0
    first.close()
    assert (await second.receive(MetadataResponse, 1))[0] == sent


async def test_a_connection_above_max_connections_per_ip_is_closed_and_logged(
    start_node: Any, connect: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    node = await start_node(max_connections_per_ip="1")
    first, second = await connect(node), await connect(node)
    assert await second.is_closed_by_broker()
    assert (await first.ask(METADATA, 1)).brokers != []
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "max.connections.per.ip is reached" in line]
    assert "client={}:{}".format(*second.writer.get_extra_info("sockname")) in line


async def test_an_override_of_max_connections_per_ip_applies_to_its_address(start_node: Any, connect: Any) -> None:
    node = await start_node(max_connections_per_ip="1", max_connections_per_ip_overrides="10.0.0.1:5,127.0.0.1:2")
    clients = [await connect(node) for _ in range(3)]
    assert await clients[2].is_closed_by_broker()
    for client in clients[:2]:
        assert (await client.ask(METADATA, 1)).brokers != []


async def test_an_idle_connection_is_closed_and_a_waiting_one_is_not(start_node: Any, connect: Any) -> None:
    node = await start_node(connections_max_idle_ms="80")
    idle, waiting = await connect(node), await connect(node)
    await waiting.create_topic("t")
    waiting.send(
        FetchRequest(
            max_wait_ms=400,
            min_bytes=1,
            topics=[FetchRequest.FetchTopic("t", partitions=[FetchRequest.FetchPartition(0)])],
        ),
        11,
    )
    assert await idle.is_closed_by_broker()
    assert len(await waiting.receive_frame()) > 0


async def test_ipv6_and_several_listeners_each_with_its_advertised_address(start_node: Any, connect: Any) -> None:
    node = await start_node(
        listeners="INSIDE://127.0.0.1:0,OUTSIDE://[::1]:0",
        advertised_listeners="INSIDE://inside.example:0,OUTSIDE://outside.example:19092",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
    )
    inside = await connect(node, port=node.listeners[0].port)
    outside = await connect(node, host="::1", port=node.listeners[1].port)
    brokers = [(await each.ask(METADATA, 9)).brokers[0] for each in (inside, outside)]
    assert [(broker.host, broker.port) for broker in brokers] == [
        ("inside.example", node.listeners[0].port),
        ("outside.example", 19092),
    ]


# -- disconnection and shutdown ---------------------------------------------------------------------------------------


@on_each_loop
async def test_a_disconnect_cancels_the_wait_of_its_fetch(node: Node, connect: Any) -> None:
    client = await connect(node)
    await client.create_topic("t")
    client.send(
        FetchRequest(
            max_wait_ms=30_000,
            min_bytes=1,
            topics=[FetchRequest.FetchTopic("t", partitions=[FetchRequest.FetchPartition(0)])],
        ),
        11,
    )
    await until(lambda: len(node.broker.purgatory) == 1)
    client.close()
    await until(lambda: len(node.broker.purgatory) == 0)


@on_each_loop
async def test_shutdown_responds_to_a_waiting_request_before_it_closes(node: Node, connect: Any) -> None:
    client = await connect(node)
    await client.create_topic("t")
    client.send(
        FetchRequest(
            max_wait_ms=30_000,
            min_bytes=1,
            topics=[FetchRequest.FetchTopic("t", partitions=[FetchRequest.FetchPartition(0)])],
        ),
        11,
    )
    await until(lambda: len(node.broker.purgatory) == 1)
    stopping = asyncio.create_task(node.stop())
    assert len(await client.receive_frame()) > 0
    assert await client.is_closed_by_broker()
    await stopping


@on_each_loop
async def test_a_client_that_reads_nothing_stops_only_its_own_connection(
    node: Node, connect: Any, make_batch: Callable[..., bytes]
) -> None:
    lazy, other = await connect(node), await connect(node)
    await other.create_topic("t", max_message_bytes="5000000")
    for _ in range(3):
        await other.produce("t", make_batch(b"x" * 4_000_000))
    fetch = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            FetchRequest.FetchTopic("t", partitions=[FetchRequest.FetchPartition(0, partition_max_bytes=50_000_000)])
        ],
    )
    for _ in range(5):
        lazy.send(fetch, 11)
    assert (await other.ask(METADATA, 9)).brokers != []
    sizes = [len(await lazy.receive_frame()) for _ in range(5)]
    await until(lambda: node.server.buffers.budget.used == 0)
    assert min(sizes) > 12_000_000
    assert len(set(sizes)) == 1


# -- ApiVersions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
async def test_every_version_of_api_versions_has_response_header_v0(client: Any, version: int) -> None:
    response = await client.ask(ApiVersionsRequest("odradek-test", "1.0"), version)
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    assert (response.error_code, ranges[0], ranges[18]) == (ErrorCode.NONE, (0, 13), (0, 4))
    assert list(ranges) == sorted(ranges)


async def test_an_unknown_version_of_api_versions_gets_a_response_in_v0(client: Any) -> None:
    client.send_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\0")
    correlation_id, response = await client.receive(ApiVersionsResponse, 0)
    assert correlation_id == 7
    assert response == ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersionsResponse.ApiVersion(18, 0, 4)]
    )
    assert (await client.ask(ApiVersionsRequest("a", "1"), 3)).error_code == ErrorCode.NONE


async def test_an_invalid_client_software_name_is_an_invalid_request(client: Any) -> None:
    response = await client.ask(ApiVersionsRequest("-bad-", "1.0"), 3)
    assert response.error_code == ErrorCode.INVALID_REQUEST


async def test_features_that_start_at_zero_are_listed_from_version_4(client: Any) -> None:
    old = await client.ask(ApiVersionsRequest("a", "1"), 3)
    new = await client.ask(ApiVersionsRequest("a", "1"), 4)
    assert "kraft.version" not in {feature.name for feature in old.supported_features}
    assert "kraft.version" in {feature.name for feature in new.supported_features}


async def test_an_emulated_release_advertises_its_own_versions(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node(odradek_emulate="3.9"))
    response = await client.ask(ApiVersionsRequest("a", "1"), 3)
    ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    assert (ranges[0], ranges[1], ranges[2]) == ((0, 11), (0, 17), (0, 9))


def long_poll(max_wait_ms: int, partition_max_bytes: int = 1000) -> FetchRequest:
    partition = FetchRequest.FetchPartition(0, partition_max_bytes=partition_max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchRequest.FetchTopic("t", partitions=[partition])]
    )


async def test_bytes_after_a_delayed_request_are_ignored(client: Any, node: Node) -> None:
    node.broker.interceptors.before_handle.append(lambda ctx, request: Delay(1))
    client.send_frame(encode_request(METADATA, 9, 7, "c") + b"\0\0\0")
    assert (await client.receive(MetadataResponse, 9))[0] == 7


async def test_a_handler_that_is_cancelled_closes_its_connection(client: Any, node: Node) -> None:
    async def handle(ctx: Any, request: Any) -> None:
        raise asyncio.CancelledError

    route = node.server.routes[0].get(MetadataRequest.API_KEY << 16 | 9)
    assert route is not None
    route.handle = handle
    client.send(METADATA, 9)
    assert await client.is_closed_by_broker()


@pytest.mark.skipif(not hasattr(os, "sendfile"), reason="without sendfile no socket of our own is made")
@on_each_loop
async def test_a_default_timeout_of_sockets_does_not_block_the_event_loop(
    client: Any, node: Node, make_batch: Callable[..., bytes]
) -> None:
    await client.create_topic("t")
    await client.produce("t", make_batch(b"x" * 500_000))
    socket.setdefaulttimeout(3)
    try:
        client.send(long_poll(0, partition_max_bytes=1_000_000), 11)
        await client.receive_frame()
    finally:
        socket.setdefaulttimeout(None)
    (connection,) = node.server.connections
    sending = connection._sender._socket
    assert sending is not None
    assert sending.gettimeout() == 0


async def test_shutdown_handles_no_request_behind_a_waiting_fetch(node: Node, client: Any) -> None:
    await client.create_topic("t")
    for _ in range(3):
        client.send(long_poll(max_wait_ms=30_000), 11)
    await until(lambda: len(node.broker.purgatory) == 1)
    async with asyncio.timeout(2):
        await node.stop()
