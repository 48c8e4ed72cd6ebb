"""DescribeConfigs of a broker that emulates a release: the settings of that release, and no others. The tables of
settings are compared with Kafka's in controller/tests/test_configs_facts.py and compat_tests/oracle."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_controller.configs.effective import ConfigSource
from odradek_controller.configs.table import Release, Resource, definitions
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from odradek_wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

BROKER, METRICS, GROUP = Resource.BROKER, Resource.CLIENT_METRICS, Resource.GROUP
Result = DescribeConfigsResponse.DescribeConfigsResult


async def described(client: Any, kind: int, name: str) -> Result:
    resource = DescribeConfigsRequest.DescribeConfigsResource(kind, name, None)
    (result,) = (await client.ask(DescribeConfigsRequest([resource], include_synonyms=True), 4)).results
    assert isinstance(result, Result)
    return result


async def altered(client: Any, kind: int, name: str, setting: str, value: str) -> ErrorCode:
    change = IncrementalAlterConfigsRequest.AlterableConfig(setting, 0, value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, [change])
    (result,) = (await client.ask(IncrementalAlterConfigsRequest([resource], False), 1)).responses
    return ErrorCode(result.error_code)


@pytest.mark.parametrize(("emulate", "release"), [("3.9", Release.KAFKA_3_9), ("4.3", Release.KAFKA_4_3)])
async def test_a_broker_describes_the_settings_and_defaults_of_the_release(
    emulate: str, release: Release, start_node: Any, connect: Any
) -> None:
    client = await connect(await start_node(odradek_emulate=emulate))
    entries = {each.name: each for each in (await described(client, BROKER, "0")).configs}
    known = {name: row for name, row in definitions(BROKER, release).items() if not row.internal}
    assert entries.keys() == known.keys()
    for name in ("num.recovery.threads.per.data.dir", "advertised.listeners", "group.coordinator.rebalance.protocols"):
        assert (entries[name].value, entries[name].config_type) == (known[name].default, known[name].type)


@pytest.mark.parametrize("settings", [{"node_id": "7"}, {"broker_id": "7"}, {"node_id": "7", "broker_id": "7"}])
async def test_node_id_and_broker_id_are_both_static(settings: Any, start_node: Any, connect: Any) -> None:
    client = await connect(await start_node(**settings))
    found = {each.name: each for each in (await described(client, BROKER, "7")).configs}
    for name in ("node.id", "broker.id"):
        entry, own = found[name], found[name].synonyms[0]
        assert (entry.value, entry.config_source, entry.read_only) == ("7", ConfigSource.STATIC_BROKER, True)
        assert (own.name, own.value, own.source) == (name, "7", ConfigSource.STATIC_BROKER)


async def test_a_dynamic_setting_of_4_0_is_unknown_and_sensitive_in_3_9(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node(odradek_emulate="3.9"))
    assert await altered(client, BROKER, "0", "remote.list.offsets.request.timeout.ms", "5") == ErrorCode.NONE
    entries = {each.name: each for each in (await described(client, BROKER, "0")).configs}
    found = entries["remote.list.offsets.request.timeout.ms"]
    assert (found.value, found.is_sensitive, found.config_type) == (None, True, 0)


async def test_groups_of_3_9_have_no_settings_and_subscriptions_only_overrides(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node(odradek_emulate="3.9"))
    assert await altered(client, GROUP, "g", "consumer.session.timeout.ms", "50000") == ErrorCode.INVALID_REQUEST
    assert (await described(client, GROUP, "g")).error_code == ErrorCode.INVALID_REQUEST
    assert await altered(client, METRICS, "m", "interval.ms", "1000") == ErrorCode.NONE
    entries = (await described(client, METRICS, "m")).configs
    assert [(each.name, each.value, each.is_sensitive, each.config_type, each.synonyms) for each in entries] == [
        ("interval.ms", "1000", False, 0, [])
    ]
    assert (await described(client, METRICS, "none")).configs == []


@pytest.mark.parametrize("name", ["x", " 0", "0_0", "1" * 5000])
async def test_a_broker_id_is_read_as_java_reads_integers(name: str, start_node: Any, connect: Any) -> None:
    client = await connect(await start_node())
    result = await described(client, BROKER, name)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message == f"Broker id must be an integer, but it is: {name}"
