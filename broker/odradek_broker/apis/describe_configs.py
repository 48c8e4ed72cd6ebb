"""DescribeConfigs (key 32): the configuration of a topic, broker, group or client-metrics subscription.

Versions: v1 has synonyms and the source of a value (KIP-226), v3 types and documentation (KIP-569), v4 is flexible.
Behaviour: `configs.effective` of the controller decides from which layer a value comes. A broker describes only itself
and the cluster-wide default.
Differences from Kafka: `documentation` is always null; a broker-logger resource has no entries.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import chain

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Sliced, Slices, run_in_slices
from odradek_broker.security.authorizer import Operation
from odradek_controller.commands.integers import parse_int
from odradek_controller.commands.topic_names import check_topic_name
from odradek_controller.configs.definition import Definition, Mode, Type
from odradek_controller.configs.effective import BrokerLayers, ConfigEntry, ConfigSource, ConfigSynonym
from odradek_controller.configs.table import Release, Resource, definitions
from odradek_controller.image import ConfigResource
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

DescribeConfigsResource = DescribeConfigsRequest.DescribeConfigsResource
DescribeConfigsResult = DescribeConfigsResponse.DescribeConfigsResult
DescribeConfigsResourceResult = DescribeConfigsResponse.DescribeConfigsResourceResult
DescribeConfigsSynonym = DescribeConfigsResponse.DescribeConfigsSynonym
Entries = Iterable[tuple[Definition, ConfigEntry]]
"""The entries of one resource, each with its definition."""
THROTTLES = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Replication quotas in bytes per second (KIP-73)."""
_INVALID_REQUEST_MESSAGE = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


class _ResourceError(Exception):
    """The error of one resource of the request."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def handle(ctx: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse | Sliced:
    return run_in_slices(_respond(ctx, request))


def _respond(ctx: Context, request: DescribeConfigsRequest) -> Generator[int, None, DescribeConfigsResponse]:
    response = DescribeConfigsResponse()
    for resource in request.resources:
        result = _describe(ctx, request, resource)
        response.results.append(result)
        yield 1 + len(result.configs)
    return response


def _describe(
    ctx: Context, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=""
    )
    try:
        found = _entries(ctx, resource.resource_type, resource.resource_name)
    except _ResourceError as failure:
        result.error_code, result.error_message = failure.error, failure.message
        return result
    wanted = set(resource.configuration_keys or ())
    result.configs = [
        _described(definition, entry, resource, synonyms=request.include_synonyms)
        for definition, entry in found
        if not wanted or definition.name in wanted
    ]
    return result


def _entries(ctx: Context, kind: int, name: str) -> Entries:
    broker = ctx.broker
    layers = broker.config.client_layers
    match kind:
        case Resource.TOPIC:
            if not ctx.may_topic(Operation.DESCRIBE_CONFIGS, name):
                raise _ResourceError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            refusal = check_topic_name(name)
            if refusal is not None:
                raise _ResourceError(refusal.error, refusal.message)
            if name not in broker.image.topics:
                raise _ResourceError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            overrides = broker.image.topic_configs(name)
            return ((row, layers.topic(row, overrides)) for row in _visible(Resource.TOPIC, layers.release))
        case Resource.GROUP if definitions(Resource.GROUP, layers.release):
            if not ctx.may_group(Operation.DESCRIBE_CONFIGS, name):
                raise _ResourceError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            if not name:
                raise _ResourceError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            overrides = _overrides(ctx, Resource.GROUP, name)
            return ((row, layers.group(row, overrides)) for row in _visible(Resource.GROUP, layers.release))
    if not ctx.may_cluster(Operation.DESCRIBE_CONFIGS):
        raise _ResourceError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    match kind:
        case Resource.BROKER:
            return _broker_entries(ctx, layers, name)
        case Resource.BROKER_LOGGER:
            _check_broker_id(ctx, name, "Broker id must not be empty")
            return ()
        case Resource.CLIENT_METRICS:
            if not name:
                raise _ResourceError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            if not broker.metadata_source.stores_client_metrics:
                message = "Config type client-metrics is only supported on KRaft clusters"
                raise _ResourceError(ErrorCode.INVALID_REQUEST, message)
            return _subscription_entries(_overrides(ctx, Resource.CLIENT_METRICS, name), layers.release)
        case _:
            raise _ResourceError(ErrorCode.INVALID_REQUEST, _INVALID_REQUEST_MESSAGE)


def _broker_entries(ctx: Context, layers: BrokerLayers, name: str) -> Entries:
    if not name:
        # The cluster-wide default has only the values that a client has set.
        shown = layers.dynamic_default
        rows = chain(_visible(Resource.BROKER, layers.release), _unlisted(layers.release, shown))
        return (
            (row, _entry_of_one_layer(row.name, shown[row.name], ConfigSource.DYNAMIC_DEFAULT_BROKER))
            for row in rows
            if row.name in shown
        )
    _check_broker_id(ctx, name, "")
    rows = chain(
        _visible(Resource.BROKER, layers.release), _unlisted(layers.release, [*layers.dynamic_default, *layers.dynamic])
    )
    return ((row, layers.broker(row.name)) for row in rows)


def _unlisted(release: Release, dynamic: Iterable[str]) -> Iterator[Definition]:
    """Yield definitions for dynamic settings that have none in Kafka's table: replication quotas, and unknown names,
    which Kafka treats as sensitive."""
    known = definitions(Resource.BROKER, release)
    for name in sorted(set(dynamic)):
        if name not in known:
            throttle = name in THROTTLES
            yield Definition(
                name,
                Type.LONG if throttle else Type.UNKNOWN,
                None,
                mode=Mode.PER_BROKER if throttle else Mode.READ_ONLY,
            )


def _check_broker_id(ctx: Context, name: str, if_empty: str) -> None:
    if not name:
        raise _ResourceError(ErrorCode.INVALID_REQUEST, if_empty)
    number = parse_int(name)
    if number is None:
        raise _ResourceError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if number != ctx.broker.node_id:
        message = f"Unexpected broker id, expected {ctx.broker.node_id} or empty string, but received {name}"
        raise _ResourceError(ErrorCode.INVALID_REQUEST, message)


def _subscription_entries(overrides: Mapping[str, str], release: Release) -> Entries:
    if release is Release.KAFKA_3_9:  # it returns only the overrides, unparsed
        for name in sorted(overrides):
            yield (
                Definition(name, Type.UNKNOWN, None),
                ConfigEntry(name, overrides[name], ConfigSource.CLIENT_METRICS, ()),
            )
        return
    for row in _visible(Resource.CLIENT_METRICS, release):
        if row.name in overrides:
            yield row, _entry_of_one_layer(row.name, overrides[row.name], ConfigSource.CLIENT_METRICS)
        else:
            yield row, ConfigEntry(row.name, row.default, ConfigSource.DEFAULT, ())


def _entry_of_one_layer(name: str, value: str | None, source: ConfigSource) -> ConfigEntry:
    return ConfigEntry(name, value, source, (ConfigSynonym(name, value, source),))


def _visible(kind: Resource, release: Release) -> Iterator[Definition]:
    return (row for row in definitions(kind, release).values() if not row.internal)


def _overrides(ctx: Context, kind: Resource, name: str) -> Mapping[str, str]:
    return ctx.broker.image.configs.get(ConfigResource(kind, name), {})


def _described(
    definition: Definition, entry: ConfigEntry, resource: DescribeConfigsResource, *, synonyms: bool
) -> DescribeConfigsResourceResult:
    of_broker = resource.resource_type == Resource.BROKER
    secret = definition.sensitive or (of_broker and definition.type is Type.UNKNOWN)
    return DescribeConfigsResourceResult(
        name=definition.name,
        value=None if secret else entry.value,
        read_only=of_broker and definition.mode is Mode.READ_ONLY,
        # Version 0 has `is_default` in place of the source; Kafka 3.9 leaves it false.
        config_source=entry.source,
        is_sensitive=secret,
        synonyms=[
            DescribeConfigsSynonym(synonym.name, None if secret else synonym.value, synonym.source)
            for synonym in (entry.synonyms if synonyms else ())
        ],
        config_type=definition.type,
        documentation=None,
    )


def error_response(ctx: Context, request: DescribeConfigsRequest, error: ErrorCode) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=error, error_message=None, resource_type=each.resource_type, resource_name=each.resource_name
            )
            for each in request.resources
        ]
    )


API = Api(
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    handle,
    error_response=error_response,
    slices=Slices("resources", "results", elements=100),
)
