"""A connection to another broker over a real socket: frames, timeouts, and responses that are not valid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from odradek_broker.inter_broker.broker_connection import BrokerConnection, BrokerConnectionError
from odradek_wire.codec import encode
from odradek_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

VERSION = 3
Respond = Callable[[bytes], list[bytes]]


def response(correlation_id: bytes, throttle_time_ms: int = 7) -> bytes:
    body = correlation_id + encode(HeartbeatResponse(throttle_time_ms=throttle_time_ms), VERSION)
    return len(body).to_bytes(4) + body


@asynccontextmanager
async def broker(respond: Respond) -> AsyncIterator[BrokerConnection]:
    """A broker that responds to each request's correlation id with these pieces; an empty one closes the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while size := await reader.read(4):
                frame = await reader.readexactly(int.from_bytes(size))
                for piece in respond(frame[4:8]):
                    if not piece:
                        return
                    writer.write(piece)
                    await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connection = await BrokerConnection.connect("127.0.0.1", server.sockets[0].getsockname()[1], "test", 5)
    try:
        yield connection
    finally:
        connection.close()
        server.close()


async def send(connection: BrokerConnection, timeout_s: float = 5) -> HeartbeatResponse:
    return await connection.request(HeartbeatRequest(), VERSION, HeartbeatResponse, timeout_s)


async def test_responses_follow_each_other_on_one_connection() -> None:
    async with broker(lambda correlation_id: [response(correlation_id)]) as connection:
        received = [await send(connection) for _ in range(3)]
        assert [each.throttle_time_ms for each in received] == [7, 7, 7]
        assert not connection.closed


async def test_a_response_may_arrive_in_pieces() -> None:
    def bytewise(correlation_id: bytes) -> list[bytes]:
        return [bytes([each]) for each in response(correlation_id)]

    async with broker(bytewise) as connection:
        assert (await send(connection)).throttle_time_ms == 7


@pytest.mark.parametrize(
    ("respond", "error"),
    [
        (lambda _: [response(b"\0\0\0\x63")], "correlation id 1 expected, 99 received"),
        (lambda correlation_id: [b"\0\0\0\x05" + correlation_id + b"\0"], "invalid response to HeartbeatRequest v3"),
        (lambda correlation_id: [2 * response(correlation_id)], "a response without a request was received"),
        (lambda _: [b"\x7f\xff\xff\xff"], "a response may have at most 1073741824 bytes, got 2147483651"),
        (lambda _: [b""], "the connection was closed"),
    ],
)
async def test_a_response_that_is_not_valid_closes_the_connection(respond: Respond, error: str) -> None:
    async with broker(respond) as connection:
        with pytest.raises(BrokerConnectionError, match=error):
            await send(connection)
        assert connection.closed
        with pytest.raises(BrokerConnectionError, match="the connection is closed"):
            await send(connection)


async def test_a_request_without_a_response_times_out() -> None:
    async with broker(lambda _: []) as connection:
        with pytest.raises(BrokerConnectionError, match=r"no response to HeartbeatRequest within 0\.01 s"):
            await send(connection, timeout_s=0.01)
        assert connection.closed


async def test_a_broker_that_refuses_connections_is_an_error() -> None:
    with pytest.raises(BrokerConnectionError, match=r"cannot connect to the broker at 127\.0\.0\.1:1: "):
        await BrokerConnection.connect("127.0.0.1", 1, "test", 5)
