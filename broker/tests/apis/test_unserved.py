"""APIs that an emulated release advertises and Odradek does not serve: an error in their own messages, on a connection
that stays. The shape of the responses is compared in compat_tests/oracle/test_emulation.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from odradek_broker.apis.table import TABLE
from odradek_broker.network.interceptors import Fail
from odradek_controller.levels import Emulation
from odradek_wire.apis import APIS, ApiKey
from odradek_wire.codec import definition
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from odradek_wire.messages.metadata import MetadataRequest
from odradek_wire.notation import Field, StructType

RELEASES = [Emulation.KAFKA_3_9, Emulation.KAFKA_4_0, Emulation.KAFKA_4_3]
Described = ConsumerGroupDescribeResponse.DescribedGroup


def unserved(emulation: Emulation) -> Iterator[tuple[ApiKey, int]]:
    for key, (lowest, highest) in (emulation.apis or {}).items():
        if key not in TABLE:
            yield from ((ApiKey(key), version) for version in range(lowest, highest + 1))


def filled(cls: type[Message], version: int) -> Any:
    """Return a message with one element in each of its arrays."""
    scalars = {"string": "s", "bytes": b"b", "records": None, "uuid": bytes(16), "bool": True, "float64": 1.0}

    def struct(of: StructType, made: Any) -> Any:
        return made(**{field.name: value(field) for field in of.present(version)})

    def value(field: Field) -> Any:
        inner = scalars.get(field.type, 1) if field.struct is None else struct(field.struct, getattr(cls, field.type))
        return [inner] if field.array else inner

    return struct(definition(cls).root, cls)


def errors(of: StructType, row: Any, version: int) -> Iterator[int]:
    """Return the values of all error fields, in this struct and in its arrays."""
    for field in of.present(version):
        if field.name.endswith("error_code"):
            yield getattr(row, field.name)
        elif field.struct is not None:
            inner = getattr(row, field.name)
            for each in (inner or []) if field.array else [inner] if inner is not None else []:
                yield from errors(field.struct, each, version)


@pytest.mark.parametrize("emulation", RELEASES)
async def test_every_unserved_api_of_an_emulated_release_gets_an_error(
    start_node: Any, connect: Any, emulation: Emulation
) -> None:
    client = await connect(await start_node(odradek_emulate=emulation.value))
    found: dict[tuple[ApiKey, int], set[int]] = {}
    for key, version in unserved(emulation):
        response = await client.ask(filled(APIS[key].request_class(), version), version)
        found[key, version] = set(errors(definition(type(response)).root, response, version))
    assert found
    assert {key: codes for key, codes in found.items() if codes != {ErrorCode.UNSUPPORTED_VERSION}} == {}


async def test_the_log_names_api_and_client_once(
    start_node: Any, connect: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    node = await start_node(odradek_emulate="4.3")
    client, other = await connect(node), await connect(node)
    for each, client_id in ((client, "one"), (other, "one"), (client, "two")):
        await each.ask(ConsumerGroupDescribeRequest(["g"]), 0, client_id)
    await node.stop()  # logs the warning that follows another one within a second
    warnings = [line for line in capsys.readouterr().out.splitlines() if "not served" in line]
    assert len(warnings) == 2
    client_address = "client={}:{}".format(*client.writer.get_extra_info("sockname"))
    for line, client_id in zip(warnings, ("one", "two"), strict=True):
        assert all(fact in line for fact in ("CONSUMER_GROUP_DESCRIBE v0", f"client_id={client_id}", client_address))


async def test_a_fault_on_an_unserved_api_has_the_error_of_the_fault(start_node: Any, connect: Any) -> None:
    node = await start_node(odradek_emulate="4.3")
    client = await connect(node)
    node.broker.interceptors.before_handle.append(lambda ctx, request: Fail(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    response = await client.ask(ConsumerGroupDescribeRequest(["g"]), 0)
    assert response.groups == [Described(ErrorCode.COORDINATOR_NOT_AVAILABLE, group_id="g")]


@pytest.mark.parametrize("emulation", [None, "3.9"])
async def test_an_api_that_is_not_advertised_closes_the_connection(
    start_node: Any, connect: Any, emulation: str | None
) -> None:
    node = await start_node(**({} if emulation is None else {"odradek_emulate": emulation}))
    client = await connect(node)
    # ConsumerGroupDescribe 1 came with 4.0.
    client.send(ConsumerGroupDescribeRequest(["g"]), 1)
    assert await client.is_closed_by_broker()
    assert (await (await connect(node)).ask(MetadataRequest([]), 9)).brokers != []
