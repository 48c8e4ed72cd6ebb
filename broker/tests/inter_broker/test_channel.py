"""The channel to one broker: connecting, the order of requests, failures and back-off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from odradek_broker.inter_broker.broker_connection import BrokerConnectionError
from odradek_broker.inter_broker.channel import WAITING_MAX, BrokerChannel
from odradek_controller.image import Endpoint
from odradek_wire.message import Message
from odradek_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

R = TypeVar("R", bound=Message)

FIRST = Endpoint("PLAINTEXT", "first", 9092)
SECOND = Endpoint("PLAINTEXT", "second", 9092)
TIMEOUT_S = 5.0


class Network:
    """Connections that a channel has opened. Requests wait for `answer` if they are `held`."""

    def __init__(self) -> None:
        self.opened: list[Wire] = []
        self.down = False
        self.held = False

    async def connect(self, endpoint: Endpoint, client_id: str, timeout_s: float) -> Wire:
        if self.down:
            raise BrokerConnectionError("down")
        self.opened.append(Wire(self, endpoint, client_id, timeout_s))
        return self.opened[-1]


class Wire:
    def __init__(self, network: Network, endpoint: Endpoint, client_id: str, timeout_s: float) -> None:
        self.opened_with = endpoint, client_id, timeout_s
        self.sent: list[str] = []
        self.closed = False
        self._network = network
        self._in_flight: asyncio.Future[None] | None = None

    async def request(self, request: Message, version: int, response: type[R], timeout_s: float) -> R:
        assert isinstance(request, HeartbeatRequest)
        self.sent.append(request.group_id)
        if self._network.down:
            raise BrokerConnectionError("down")
        if self._network.held:
            self._in_flight = asyncio.get_running_loop().create_future()
            await self._in_flight
        return response()

    def answer(self) -> None:
        assert self._in_flight is not None
        self._in_flight.set_result(None)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def network() -> Network:
    return Network()


def channel_on(network: Network, endpoint: Callable[[], Endpoint | None] = lambda: FIRST) -> BrokerChannel:
    return BrokerChannel(
        "broker 2",
        endpoint,
        client_id="broker-1-test",
        timeout_s=TIMEOUT_S,
        backoff_ms=(10, 20),
        connect=network.connect,
    )


async def send(channel: BrokerChannel, name: str = "a") -> HeartbeatResponse:
    return await channel.request(HeartbeatRequest(group_id=name), 4, HeartbeatResponse)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_the_first_request_connects_and_later_requests_use_the_connection(network: Network) -> None:
    channel = channel_on(network)
    assert (channel.connected, network.opened) == (False, [])
    await send(channel, "a")
    await send(channel, "b")
    (wire,) = network.opened
    assert (wire.opened_with, wire.sent) == ((FIRST, "broker-1-test", TIMEOUT_S), ["a", "b"])
    assert channel.connected


async def test_connect_opens_a_connection_once(network: Network) -> None:
    channel = channel_on(network)
    await channel.connect()
    await channel.connect()
    assert (channel.connected, len(network.opened)) == (True, 1)


async def test_a_broker_with_a_new_endpoint_gets_a_new_connection(network: Network) -> None:
    endpoints = [FIRST]
    channel = channel_on(network, lambda: endpoints[-1])
    await send(channel)
    endpoints.append(SECOND)
    assert not channel.connected
    await send(channel)
    assert [(wire.opened_with[0], wire.closed) for wire in network.opened] == [(FIRST, True), (SECOND, False)]


async def test_a_connection_that_the_other_broker_closed_is_replaced(network: Network) -> None:
    channel = channel_on(network)
    await send(channel)
    network.opened[0].closed = True
    await send(channel)
    assert [wire.sent for wire in network.opened] == [["a"], ["a"]]


async def test_a_broker_without_an_endpoint_is_an_error(network: Network) -> None:
    channel = channel_on(network, lambda: None)
    with pytest.raises(BrokerConnectionError, match="broker 2 has no endpoint in the metadata"):
        await send(channel)


async def test_backoff_grows_with_failures_in_a_row_and_ends_with_a_response(network: Network) -> None:
    channel = channel_on(network)
    network.down = True
    delays_ms = [channel.backoff_ms]
    for _ in range(3):
        with pytest.raises(BrokerConnectionError):
            await send(channel)
        delays_ms.append(channel.backoff_ms)
    network.down = False
    await send(channel)
    assert [*delays_ms, channel.backoff_ms] == [0, 10, 20, 20, 0]


async def test_a_failed_request_closes_its_connection_and_is_not_sent_again(network: Network) -> None:
    channel = channel_on(network)
    await send(channel, "a")
    network.down = True
    with pytest.raises(BrokerConnectionError):
        await send(channel, "b")
    network.down = False
    await send(channel, "c")
    assert [(wire.sent, wire.closed) for wire in network.opened] == [(["a", "b"], True), (["c"], False)]


async def test_requests_are_sent_one_at_a_time_in_order(network: Network) -> None:
    channel = channel_on(network)
    network.held = True
    requests = [asyncio.create_task(send(channel, name)) for name in "abc"]
    sent = []
    for _ in requests:
        await turns()
        sent.append(list(network.opened[0].sent))
        network.opened[0].answer()
    await asyncio.gather(*requests)
    assert sent == [["a"], ["a", "b"], ["a", "b", "c"]]


async def test_a_cancelled_request_closes_the_connection_without_a_failure(network: Network) -> None:
    channel = channel_on(network)
    network.held = True
    request = asyncio.create_task(send(channel))
    await turns()
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)
    assert (network.opened[0].closed, channel.connected, channel.failures) == (True, False, 0)


async def test_more_requests_than_may_wait_fail(network: Network) -> None:
    channel = channel_on(network)
    network.held = True
    requests = [asyncio.create_task(send(channel)) for _ in range(WAITING_MAX)]
    await turns()
    with pytest.raises(BrokerConnectionError, match=f"at most {WAITING_MAX} requests may wait for broker 2"):
        await send(channel)
    for request in requests:
        request.cancel()
    await asyncio.gather(*requests, return_exceptions=True)
