"""An authenticator, an authorizer and quotas plug into a broker by its environment. They apply to the fast path of
Produce as to every other request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from broker.tests.fetches import fetch_request
from broker.tests.manual_clock import ManualClock

from odradek_broker.security.authorizer import AllowAll, Operation, ResourceType
from odradek_broker.security.quotas import HandledRequest, Unlimited
from odradek_controller.image import MetadataDelta
from odradek_controller.principal import ANONYMOUS, Principal
from odradek_wire.apis import ApiKey
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.api_versions import ApiVersionsRequest
from odradek_wire.messages.metadata import MetadataRequest
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse
from odradek_wire.uuid import Uuid

MakeBatch = Callable[..., bytes]
MakeProduce = Callable[..., ProduceRequest]
ALICE = Principal("User", "alice")
API_VERSIONS = ApiVersionsRequest("test", "1")
TIME = 1_700_000_000_000
FAST_PATH_VERSIONS = [7, 8, 9, 12, 13]


class StepAuthenticator:
    """An authenticator that completes when the test sets its principal, and allows ApiVersions before."""

    def __init__(self) -> None:
        self.principal: Principal | None = None

    def allows_before_completion(self, api_key: int) -> bool:
        return api_key == ApiKey.API_VERSIONS


class StepChannelBuilder:
    """A channel builder that keeps the authenticators of its connections."""

    ssl_context = None

    def __init__(self) -> None:
        self.authenticators: list[StepAuthenticator] = []
        self.listener = ""

    def new(self, listener: str, config: object) -> StepChannelBuilder:
        self.listener = listener
        return self

    def authenticator(self, transport: object) -> StepAuthenticator:
        self.authenticators.append(StepAuthenticator())
        return self.authenticators[-1]


class TopicAuthorizer(AllowAll):
    """Denies one topic to every principal except Alice, and records each check of it."""

    allows_everything = False

    def __init__(self, config: object) -> None:
        self.checks: list[tuple[Principal, Operation]] = []
        self.deltas: list[MetadataDelta] = []

    def allows(
        self, principal: Principal, address: str, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        if resource == ResourceType.TOPIC and name == "denied":
            self.checks.append((principal, operation))
            return principal == ALICE
        return True

    def apply(self, delta: MetadataDelta) -> None:
        self.deltas.append(delta)


class ClientQuotas(Unlimited):
    """Throttles each Produce and Fetch of one client for a second, and records each request."""

    unlimited = False

    def __init__(self, config: object) -> None:
        self.handled: list[HandledRequest] = []

    def throttle_ms(self, request: HandledRequest) -> int:
        self.handled.append(request)
        return 1000 if request.client_id == "greedy" and request.api_key in (ApiKey.PRODUCE, ApiKey.FETCH) else 0


async def test_a_request_before_authentication_closes_the_connection(
    start_node: Any, connect: Any, make_batch: MakeBatch, make_produce: MakeProduce
) -> None:
    builder = StepChannelBuilder()
    node = await start_node(security={"channel_builders": {"PLAINTEXT": builder.new}})
    for request, version in ((MetadataRequest([]), 9), (make_produce("t", make_batch(b"v")), 9)):
        client = await connect(node)
        assert (await client.ask(API_VERSIONS, 3)).error_code == 0
        client.send(request, version)
        assert await client.is_closed_by_broker()
    assert (builder.listener, len(builder.authenticators)) == ("PLAINTEXT", 2)


@pytest.mark.parametrize("version", FAST_PATH_VERSIONS)
async def test_requests_have_the_principal_that_the_authenticator_sets(
    start_node: Any, connect: Any, make_batch: MakeBatch, make_produce: MakeProduce, version: int
) -> None:
    builder = StepChannelBuilder()
    node = await start_node(security={"channel_builders": {"PLAINTEXT": builder.new}, "authorizer": TopicAuthorizer})
    for principal, error in ((ALICE, 0), (Principal("User", "bob"), ErrorCode.TOPIC_AUTHORIZATION_FAILED)):
        client = await connect(node)
        assert (await client.ask(API_VERSIONS, 3)).error_code == 0
        builder.authenticators[-1].principal = principal
        if principal == ALICE:
            topic_id = await client.create_topic("denied")
        node.broker.authorizer.checks.clear()
        response = await client.ask(make_produce("denied", make_batch(b"v"), 0, -1, Uuid(topic_id)), version)
        assert response.responses[0].partition_responses[0].error_code == error
        # The fast path asks the authorizer, and leaves a refusal to the general path, which asks again.
        assert node.broker.authorizer.checks == [(principal, Operation.WRITE)] * (2 if error else 1)
    assert node.broker.partitions.get("denied", 0).log_end_offset == 1


async def test_a_connection_whose_session_expires_must_authenticate_again(
    start_node: Any, connect: Any, make_batch: MakeBatch
) -> None:
    builder = StepChannelBuilder()
    node = await start_node(security={"channel_builders": {"PLAINTEXT": builder.new}})
    client = await connect(node)
    await client.ask(API_VERSIONS, 3)
    builder.authenticators[0].principal = ALICE
    await client.create_topic("t")
    assert (await client.produce("t", make_batch(b"v"))).error_code == 0
    builder.authenticators[0].principal = None
    (connection,) = node.server.connections
    assert not connection.check_authentication()
    assert (await client.ask(API_VERSIONS, 3)).error_code == 0
    client.send(MetadataRequest([]), 9)
    assert await client.is_closed_by_broker()


@pytest.mark.parametrize("version", FAST_PATH_VERSIONS)
async def test_the_authorizer_refuses_a_produce_on_the_fast_path(
    start_node: Any, connect: Any, make_batch: MakeBatch, make_produce: MakeProduce, version: int
) -> None:
    node = await start_node(security={"authorizer": TopicAuthorizer})
    client = await connect(node)
    codes = {}
    for name in ("allowed", "denied"):
        topic_id = await client.create_topic(name)
        node.broker.authorizer.checks.clear()
        response = await client.ask(make_produce(name, make_batch(b"v"), 0, -1, topic_id), version)
        codes[name] = response.responses[0].partition_responses[0].error_code
    assert codes == {"allowed": ErrorCode.NONE, "denied": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert node.broker.partitions.get("denied", 0).log_end_offset == 0
    assert set(node.broker.authorizer.checks) == {(ANONYMOUS, Operation.WRITE)}


async def test_the_authorizer_gets_every_metadata_delta(start_node: Any, connect: Any) -> None:
    node = await start_node(security={"authorizer": TopicAuthorizer})
    client = await connect(node)
    await client.create_topic("t")
    assert node.broker.authorizer.deltas[-1].image is node.broker.image


@pytest.mark.parametrize("version", FAST_PATH_VERSIONS)
async def test_quotas_throttle_a_produce_that_would_take_the_fast_path(
    start_node: Any, connect: Any, make_batch: MakeBatch, make_produce: MakeProduce, version: int
) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock, security={"quotas": ClientQuotas})
    greedy, modest = await connect(node), await connect(node)
    topic_id = await modest.create_topic("t")
    produce = make_produce("t", make_batch(b"v", timestamp=TIME), 0, -1, topic_id)
    greedy.send(produce, version, "greedy")
    assert (await greedy.receive(ProduceResponse, version))[1].throttle_time_ms == 1000
    assert (await modest.ask(produce, version, "modest")).throttle_time_ms == 0
    handled = node.broker.quotas.handled
    found = [(each.api_key, each.client_id, each.request_bytes > 60) for each in handled[1:]]
    assert found == [(ApiKey.PRODUCE, "greedy", True), (ApiKey.PRODUCE, "modest", True)]
    await is_muted(greedy, modest, clock)


async def test_quotas_throttle_a_produce_without_a_response(
    start_node: Any, connect: Any, make_batch: MakeBatch, make_produce: MakeProduce
) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock, security={"quotas": ClientQuotas})
    greedy, modest = await connect(node), await connect(node)
    topic_id = await modest.create_topic("t")
    greedy.send(make_produce("t", make_batch(b"v", timestamp=TIME), 0, 0, topic_id), 9, "greedy")
    await is_muted(greedy, modest, clock)
    assert [each.response for each in node.broker.quotas.handled if each.api_key == ApiKey.PRODUCE] == [None]


async def test_quotas_throttle_a_fetch_that_does_not_fit_into_the_socket(
    start_node: Any, connect: Any, make_batch: MakeBatch
) -> None:
    clock = ManualClock()
    node = await start_node(clock=clock, security={"quotas": ClientQuotas})
    greedy, modest = await connect(node), await connect(node)
    await modest.create_topic("t", max_message_bytes="30000000")
    assert (await modest.produce("t", make_batch(b"v" * 20_000_000, timestamp=TIME))).error_code == 0
    greedy.send(fetch_request("t", partition_max_bytes=30_000_000), 11, "greedy")
    (connection,) = [
        each for each in node.server.connections if each.port == greedy.writer.get_extra_info("sockname")[1]
    ]
    async with asyncio.timeout(10):
        while not connection.busy:
            await asyncio.sleep(0)
    assert len(await greedy.receive_frame()) > 20_000_000
    await is_muted(greedy, modest, clock)


async def is_muted(greedy: Any, modest: Any, clock: ManualClock) -> None:
    """Assert that the broker handles the next request of `greedy` a second later on the clock of timeouts."""
    sent = greedy.send(MetadataRequest([]), 9, "greedy")
    waiting = asyncio.ensure_future(greedy.receive_frame())
    for _ in range(3):
        await modest.ask(MetadataRequest([]), 9, "modest")
    clock.advance_timeouts(999)
    await modest.ask(MetadataRequest([]), 9, "modest")
    assert not waiting.done()
    clock.advance_timeouts(1)
    assert int.from_bytes((await waiting)[:4], "big") == sent
