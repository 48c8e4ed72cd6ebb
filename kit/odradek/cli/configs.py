"""`odradek configs`: show and change the settings of topics and brokers."""

from __future__ import annotations

import click

from odradek.cli.output import bootstrap_option, connected, json_option, parse_settings, show
from odradek.client import Client, KafkaError
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from odradek_wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1
# Short names for the values of config_source in DescribeConfigs (KIP-226).
_SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "file",
    5: "default",
    6: "logger",
    7: "client metrics",
    8: "group",
}


@click.group()
def command() -> None:
    """Show and change the settings of topics and brokers."""


def _resource(text: str) -> tuple[int, str]:
    kind, separator, name = text.partition(":")
    return (_BROKER, name) if separator and kind == "broker" else (_TOPIC, text)


@command.command("show")
@bootstrap_option
@json_option
@click.option("--all", "everything", is_flag=True, help="Include settings that have their default value.")
@click.argument("resource")
def show_configs(bootstrap: str, as_json: bool, everything: bool, resource: str) -> None:
    """Show the settings of RESOURCE, and the source of each value.

    RESOURCE is the name of a topic, broker:1 for the broker with the id 1, or broker: for the default of all brokers.
    """
    kind, name = _resource(resource)
    request = DescribeConfigsRequest([DescribeConfigsRequest.DescribeConfigsResource(kind, name, None)])
    with connected(bootstrap) as client:
        node_id = _serving_broker(client, kind, name)
        (result,) = client.call_broker(node_id, request, DescribeConfigsResponse).results
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(result.error_code, resource, result.error_message)
    rows = [
        {
            "name": config.name,
            "value": config.value,
            "source": _SOURCES.get(config.config_source, "unknown"),
            "read_only": config.read_only,
        }
        for config in sorted(result.configs, key=lambda config: config.name)
        if everything or _SOURCES.get(config.config_source) != "default"
    ]
    show(rows, ["name", "value", "source", "read_only"], as_json=as_json)


@command.command("set")
@bootstrap_option
@click.argument("resource")
@click.argument("settings", nargs=-1, required=True, metavar="NAME=VALUE...")
def set_configs(bootstrap: str, resource: str, settings: tuple[str, ...]) -> None:
    """Set settings of RESOURCE.

    RESOURCE is the name of a topic, broker:1 for the broker with the id 1, or broker: for the default of all brokers.
    """
    _alter(bootstrap, resource, [(name, _SET, value) for name, value in parse_settings(settings).items()])


@command.command("unset")
@bootstrap_option
@click.argument("resource")
@click.argument("names", nargs=-1, required=True)
def unset_configs(bootstrap: str, resource: str, names: tuple[str, ...]) -> None:
    """Remove settings of RESOURCE: each has its default again.

    RESOURCE is the name of a topic, broker:1 for the broker with the id 1, or broker: for the default of all brokers.
    """
    _alter(bootstrap, resource, [(name, _DELETE, None) for name in names])


def _alter(bootstrap: str, resource: str, changes: list[tuple[str, int, str | None]]) -> None:
    kind, name = _resource(resource)
    configs = [IncrementalAlterConfigsRequest.AlterableConfig(*change) for change in changes]
    request = IncrementalAlterConfigsRequest([IncrementalAlterConfigsRequest.AlterConfigsResource(kind, name, configs)])
    with connected(bootstrap) as client:
        node_id = _serving_broker(client, kind, name)
        (result,) = client.call_broker(node_id, request, IncrementalAlterConfigsResponse).responses
        if result.error_code != ErrorCode.NONE:
            raise KafkaError(result.error_code, resource, result.error_message)


def _serving_broker(client: Client, kind: int, name: str) -> int:
    """Return the broker that is named; for a topic and for the default of all brokers any broker serves the request."""
    if kind == _BROKER and name:
        if not name.isdecimal():
            raise click.ClickException(f"broker:{name} must name the id of a broker, such as broker:1")
        return int(name)
    return client.node_ids()[0]
