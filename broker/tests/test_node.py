"""A whole node: start, refusals to start, dynamic configuration, reset, stop."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker.tests.alone import Node

from odradek_broker.apis.table import TABLE
from odradek_broker.config import BrokerConfig
from odradek_broker.network.listeners import Listener, ListenerError, parse_listeners
from odradek_broker.security.authorizer import AllowAll
from odradek_broker.security.quotas import HandledRequest, Unlimited
from odradek_controller.principal import Principal
from odradek_log.log_errors import LogDirectoryError
from odradek_wire.apis import APIS
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.fetch import FetchRequest
from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek_wire.messages.init_producer_id import InitProducerIdRequest
from odradek_wire.messages.metadata import MetadataRequest
from odradek_wire.uuid import Uuid

MakeBatch = Callable[..., bytes]
TOPIC, BROKER = 2, 4


def change(kind: int, name: str, **settings: str) -> IncrementalAlterConfigsRequest:
    """Set settings (underscores for dots) of a topic or broker."""
    configs = [
        IncrementalAlterConfigsRequest.AlterableConfig(key.replace("_", "."), 0, value)
        for key, value in settings.items()
    ]
    return IncrementalAlterConfigsRequest([IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, configs)])


# -- starting ---------------------------------------------------------------------------------------------------------


async def test_a_data_directory_serves_one_node_at_a_time(start_node: Any) -> None:
    await start_node()
    with pytest.raises(LogDirectoryError, match="another broker"):
        await start_node()


async def test_a_data_directory_of_another_node_or_cluster_is_refused(start_node: Any) -> None:
    await (await start_node(node_id="1")).stop()
    with pytest.raises(LogDirectoryError, match="belongs to node 1"):
        await start_node(node_id="2")
    with pytest.raises(LogDirectoryError, match="not to other"):
        await start_node(node_id="1", cluster_id="other")
    again = await start_node(node_id="1")
    assert again.ready


async def test_a_port_in_use_is_an_error_that_leaves_nothing_open(start_node: Any) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            await start_node(listeners=f"PLAINTEXT://127.0.0.1:{port}")
    assert (await start_node()).ready


async def test_identity_and_topics_survive_a_restart(start_node: Any, connect: Any) -> None:
    node = await start_node()
    topic_id = await (await connect(node)).create_topic("t", partitions=3)
    identity = (node.broker.image.cluster_id, node.broker.log_directories.all[0].meta.directory_id)
    await node.stop()
    again = await start_node()
    assert identity == (again.broker.image.cluster_id, again.broker.log_directories.all[0].meta.directory_id)
    assert (again.broker.image.topics["t"].id, len(again.broker.partitions)) == (topic_id, 3)


async def test_a_stray_log_is_set_aside(start_node: Any, connect: Any, tmp_path: Path) -> None:
    node = await start_node()
    await (await connect(node)).create_topic("t")
    node.broker.log_directories.all[0].create_log(
        "stray", 0, Uuid(b"s" * 16), node.broker.partitions.get("t", 0).log.config
    )
    await node.stop()
    await start_node()
    names = sorted(path.name.split(".")[0] for path in (tmp_path / "data").iterdir() if path.is_dir())
    assert names == ["__cluster_metadata-0", "stray-0", "t-0"]
    assert [path.name for path in (tmp_path / "data").glob("stray-0.*-stray")] != []


async def test_a_corrupt_log_is_offline_and_the_others_are_served(
    start_node: Any, connect: Any, make_batch: MakeBatch, tmp_path: Path
) -> None:
    node = await start_node()
    client = await connect(node)
    await client.create_topic("t", partitions=2)
    for partition in (0, 1):
        await client.produce("t", make_batch(b"v"), partition=partition)
    await node.kill()
    broken = tmp_path / "data" / "t-0" / "00000000000000000000.log"
    broken.unlink()
    broken.mkdir()
    client = await connect(await start_node())
    assert (await client.produce("t", make_batch(b"v"))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await client.produce("t", make_batch(b"v"), partition=1)).base_offset == 1


async def test_partitions_are_spread_over_the_log_directories(start_node: Any, connect: Any, tmp_path: Path) -> None:
    directories = [tmp_path / "one", tmp_path / "two"]
    node = await start_node(log_dirs=",".join(map(str, directories)))
    await (await connect(node)).create_topic("t", partitions=6)
    assert [len(list(each.glob("t-*"))) for each in directories] == [3, 3]


# -- dynamic configuration --------------------------------------------------------------------------------------------


async def test_a_changed_topic_setting_holds_from_the_next_request(
    client: Any, node: Node, make_batch: MakeBatch
) -> None:
    await client.create_topic("t")
    await client.ask(change(TOPIC, "t", max_message_bytes="100"), 1)
    assert (await client.produce("t", make_batch(b"x" * 100))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    await client.ask(change(TOPIC, "t", max_message_bytes="1000"), 1)
    assert (await client.produce("t", make_batch(b"x" * 100))).error_code == ErrorCode.NONE


async def test_a_changed_broker_setting_reaches_every_topic_without_its_own(
    client: Any, node: Node, make_batch: MakeBatch
) -> None:
    await client.create_topic("default")
    await client.create_topic("own", max_message_bytes="5000")
    for name in ("", "0"):
        response = await client.ask(change(BROKER, name, message_max_bytes="100"), 1)
        assert response.responses[0].error_code == ErrorCode.NONE
    errors = [(await client.produce(topic, make_batch(b"x" * 200))).error_code for topic in ("default", "own")]
    assert errors == [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.NONE]
    assert node.broker.config.integer("message.max.bytes") == 100


async def test_strict_validation_checks_every_record(start_node: Any, connect: Any, make_batch: MakeBatch) -> None:
    node = await start_node(odradek_validation="strict")
    client = await connect(node)
    await client.create_topic("t")
    assert (await client.produce("t", make_batch(b"a", b"b"))).error_code == ErrorCode.NONE
    assert node.broker.partitions.get("t", 0).strict_validation


# -- resetting --------------------------------------------------------------------------------------------------------


async def test_a_reset_keeps_only_the_connections(node: Node, connect: Any, make_batch: MakeBatch) -> None:
    waiting, client = await connect(node), await connect(node)
    before = await client.create_topic("t", partitions=3)
    await client.produce("t", make_batch(b"v"))
    producer = await client.ask(InitProducerIdRequest(None, 0), 4)
    wait = asyncio.create_task(
        waiting.ask(
            FetchRequest(
                max_wait_ms=30_000,
                min_bytes=1,
                topics=[FetchRequest.FetchTopic("t", partitions=[FetchRequest.FetchPartition(1)])],
            ),
            11,
        )
    )
    async with asyncio.timeout(10):
        while not len(node.broker.purgatory):
            await asyncio.sleep(0)
    await node.reset()
    error = (await wait).responses[0].partitions[0].error_code
    assert (error, node.broker.image.topics, len(node.broker.partitions)) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        {},
        0,
    )
    after = await client.create_topic("t", partitions=3)
    assert after != before
    assert (await client.produce("t", make_batch(b"v"))).base_offset == 0
    assert (await client.ask(InitProducerIdRequest(None, 0), 4)).producer_id > producer.producer_id


async def test_a_reset_deletes_topics_that_are_created_meanwhile(node: Node, client: Any) -> None:
    await client.create_topic("t")
    late = CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("late", 1, 1)])
    resetting = asyncio.ensure_future(node.reset({"mine": 2}))
    await asyncio.gather(resetting, node.controller.submit(late))
    assert {name: len(topic.partitions) for name, topic in node.broker.image.topics.items()} == {"mine": 2}


async def test_a_reset_deletes_dynamic_configs(node: Node, client: Any) -> None:
    as_new = node.broker.image.configs
    for kind, name in ((BROKER, ""), (BROKER, str(node.broker.node_id))):
        changed = await node.controller.submit(change(kind, name, message_max_bytes="1234"))
        assert changed.responses[0].error_code == 0
    assert node.broker.config.integer("message.max.bytes") == 1234
    await node.reset({"t": 1})
    assert node.broker.image.configs == as_new
    assert node.broker.config.integer("message.max.bytes") == 1_048_588
    partition = node.broker.partitions.get("t", 0)
    assert partition is not None
    assert partition.log.config.max_message_bytes == 1_048_588


async def test_a_reset_that_cannot_delete_topics_raises(start_node: Any, connect: Any) -> None:
    node = await start_node(delete_topic_enable="false")
    await (await connect(node)).create_topic("t")
    with pytest.raises(ValueError, match=r"topic 't' cannot be deleted: Topic deletion is disabled\."):
        await node.reset()


# -- stopping ---------------------------------------------------------------------------------------------------------


async def test_stopping_twice_and_killing_a_stopped_node_do_nothing(start_node: Any) -> None:
    node = await start_node()
    await node.stop()
    await node.stop()
    await node.kill()
    assert not node.ready


async def test_a_stop_writes_the_marker_of_a_clean_shutdown(start_node: Any, tmp_path: Path) -> None:
    node = await start_node()
    await node.stop()
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    again = await start_node()
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert again.broker.log_directories.all[0].clean_shutdown


# -- stages -----------------------------------------------------------------------------------------------------------


class Slow(Unlimited):
    """Quotas that throttle every request of one client."""

    unlimited = False

    def throttle_ms(self, request: HandledRequest) -> int:
        return 40 if request.client_id == "slow" else 0


async def test_a_throttled_client_gets_the_time_and_is_muted(node: Node, client: Any) -> None:
    node.broker.quotas = Slow()
    fast = await client.ask(MetadataRequest([]), 9, "fast")
    started = asyncio.get_running_loop().time()
    slow = await client.ask(MetadataRequest([]), 9, "slow")
    await client.ask(MetadataRequest([]), 9, "fast")
    waited = asyncio.get_running_loop().time() - started
    assert (fast.throttle_time_ms, slow.throttle_time_ms) == (0, 40)
    assert waited >= 0.035


class OnlyReading(AllowAll):
    """An authorizer that denies every write."""

    allows_everything = False

    def allows(self, principal: Principal, address: str, operation: int, resource: int, name: str) -> bool:
        return operation != 4 and str(principal) == "User:ANONYMOUS" and address == "127.0.0.1"


async def test_the_authorizer_is_asked_for_each_topic(node: Node, client: Any, make_batch: MakeBatch) -> None:
    await client.create_topic("t")
    node.broker.authorizer = OnlyReading()
    assert (await client.produce("t", make_batch(b"v"))).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (await client.ask(MetadataRequest(None), 9)).topics[0].name == "t"


def test_every_api_has_its_own_key_and_messages() -> None:
    for key, api in TABLE.items():
        assert api.request is APIS[key].request_class()
        assert api.response is APIS[key].response_class()


def test_an_api_is_imported_with_its_first_request() -> None:
    script = """
import asyncio, sys, tempfile
from odradek_broker.embedded import EmbeddedCluster
async def main():
    cluster = await EmbeddedCluster.start([{"log.dirs": tempfile.mkdtemp(), "listeners": "PLAINTEXT://127.0.0.1:0"}])
    assert cluster.ready
    await cluster.stop()
asyncio.run(main())
loaded = {name for name in sys.modules if name.startswith("odradek_broker.")}
assert "odradek_broker.apis.table" in loaded
coordinators = ("groups", "transactions.transaction_coordinator")
for late in (*coordinators, "apis.produce", "apis.join_group", "metrics", "network.http_port"):
    assert f"odradek_broker.{late}" not in loaded, late
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_every_api_can_return_an_error_of_the_whole_request() -> None:
    for api in TABLE.values():
        assert api.error_response is not None or "error_code" in api.response.__slots__


# -- listeners --------------------------------------------------------------------------------------------------------


def listeners(**settings: str) -> list[Listener]:
    return parse_listeners(BrokerConfig({key.replace("_", "."): value for key, value in settings.items()}), "here")


def test_a_listener_on_all_interfaces_advertises_the_host() -> None:
    assert listeners(listeners="PLAINTEXT://:9092") == [Listener("PLAINTEXT", "PLAINTEXT", "", 9092, "here", 9092)]


def test_listeners_of_the_controller_are_not_for_clients() -> None:
    found = listeners(
        listeners="PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093", controller_listener_names="CONTROLLER"
    )
    assert [listener.name for listener in found] == ["PLAINTEXT"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "nonsense"}, "expected NAME://host:port"),
        ({"listeners": "PLAINTEXT://a:70000"}, "outside 0..65535"),
        ({"listeners": "MINE://a:1"}, "add the security protocol of listener MINE, such as MINE:PLAINTEXT"),
        ({"listeners": "SSL://a:1"}, "listener SSL must have one of the protocols PLAINTEXT, got SSL"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "a name of its own"),
        ({"listeners": "PLAINTEXT://a:1", "advertised_listeners": "OTHER://a:1"}, "OTHER is not in listeners"),
        ({"listeners": "PLAINTEXT://a:1", "advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "clients can reach"),
    ],
)
def test_invalid_listeners_are_refused_with_the_reason(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ListenerError, match=message):
        listeners(**settings)
