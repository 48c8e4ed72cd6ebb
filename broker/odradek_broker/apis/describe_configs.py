"""DescribeConfigs (key 32): the configuration of a topic, broker, group or client-metrics subscription.

Versions: v1 has synonyms and the source of a value (KIP-226), v3 types and documentation (KIP-569), v4 is flexible.
Behaviour: `configs.effective` of the controller decides which layer a value comes from.
Differences from Kafka: `documentation` is always null; a broker-logger resource has no entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.slices import Slices
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
Described = Iterable[tuple[Definition, ConfigEntry]]


THROTTLES = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
"""Replication quotas in bytes per second (KIP-73)."""
_MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to an "
    "incompatible broker. See the broker logs for more details."
)


class _Refused(Exception):
    """The error of a resource in the request."""

    def __init__(self, error: ErrorCode, message: str | None = None) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


def handle(ctx: Context, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_describe(ctx, request, resource) for resource in request.resources])


def _describe(
    ctx: Context, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name, error_message=""
    )
    try:
        found = _entries(ctx, resource.resource_type, resource.resource_name)
    except _Refused as refused:
        result.error_code, result.error_message = refused.error, refused.message
        return result
    wanted = set(resource.configuration_keys or ())
    result.configs = [
        _shown(ctx, definition, entry, resource, synonyms=request.include_synonyms)
        for definition, entry in found
        if not wanted or definition.name in wanted
    ]
    return result


def _entries(ctx: Context, kind: int, name: str) -> Described:
    broker = ctx.broker
    layers = broker.config.client_layers
    match kind:
        case Resource.TOPIC:
            if not ctx.may_topic(Operation.DESCRIBE_CONFIGS, name):
                raise _Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            refusal = check_topic_name(name)
            if refusal is not None:
                raise _Refused(refusal.error, refusal.message)
            if name not in broker.image.topics:
                raise _Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            overrides = broker.image.topic_configs(name)
            return ((row, layers.topic(row, overrides)) for row in _visible(Resource.TOPIC, layers.release))
        case Resource.GROUP if definitions(Resource.GROUP, layers.release):
            if not ctx.may_group(Operation.DESCRIBE_CONFIGS, name):
                raise _Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            if not name:
                raise _Refused(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            overrides = _overrides(ctx, Resource.GROUP, name)
            return ((row, layers.group(row, overrides)) for row in _visible(Resource.GROUP, layers.release))
    if not ctx.may_cluster(Operation.DESCRIBE_CONFIGS):
        raise _Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    match kind:
        case Resource.BROKER:
            return _of_broker(ctx, layers, name)
        case Resource.BROKER_LOGGER:
            _check_broker_id(ctx, name, "Broker id must not be empty")
            return ()
        case Resource.CLIENT_METRICS:
            if not name:
                raise _Refused(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            if not broker.metadata_source.stores_client_metrics:
                message = "Config type client-metrics is only supported on KRaft clusters"
                raise _Refused(ErrorCode.INVALID_REQUEST, message)
            return _of_subscription(_overrides(ctx, Resource.CLIENT_METRICS, name), layers.release)
        case _:
            raise _Refused(ErrorCode.INVALID_REQUEST, _MALFORMED)


def _of_broker(ctx: Context, layers: BrokerLayers, name: str) -> Described:
    if not name:
        # The cluster-wide default has only the values that were set.
        shown = layers.dynamic_default
        rows = chain(_visible(Resource.BROKER, layers.release), _unlisted(layers.release, shown))
        return (
            (row, _only(row.name, shown[row.name], ConfigSource.DYNAMIC_DEFAULT_BROKER))
            for row in rows
            if row.name in shown
        )
    _check_broker_id(ctx, name, "")
    rows = chain(
        _visible(Resource.BROKER, layers.release), _unlisted(layers.release, [*layers.dynamic_default, *layers.dynamic])
    )
    return ((row, layers.broker(row.name)) for row in rows)


def _unlisted(release: Release, dynamic: Iterable[str]) -> Iterator[Definition]:
    """Yield definitions for dynamic settings that no table has: replication quotas, and unknown names, which Kafka
    treats as sensitive."""
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
        raise _Refused(ErrorCode.INVALID_REQUEST, if_empty)
    number = parse_int(name)
    if number is None:
        raise _Refused(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if number != ctx.broker.node_id:
        message = f"Unexpected broker id, expected {ctx.broker.node_id} or empty string, but received {name}"
        raise _Refused(ErrorCode.INVALID_REQUEST, message)


def _of_subscription(overrides: Mapping[str, str], release: Release) -> Described:
    if release is Release.KAFKA_3_9:  # it returns only the overrides, unparsed
        for name in sorted(overrides):
            yield (
                Definition(name, Type.UNKNOWN, None),
                ConfigEntry(name, overrides[name], ConfigSource.CLIENT_METRICS, ()),
            )
        return
    for row in _visible(Resource.CLIENT_METRICS, release):
        if row.name in overrides:
            yield row, _only(row.name, overrides[row.name], ConfigSource.CLIENT_METRICS)
        else:
            yield row, ConfigEntry(row.name, row.default, ConfigSource.DEFAULT, ())


def _only(name: str, value: str | None, source: ConfigSource) -> ConfigEntry:
    return ConfigEntry(name, value, source, (ConfigSynonym(name, value, source),))


def _visible(kind: Resource, release: Release) -> Iterator[Definition]:
    return (row for row in definitions(kind, release).values() if not row.internal)


def _overrides(ctx: Context, kind: Resource, name: str) -> Mapping[str, str]:
    return ctx.broker.image.configs.get(ConfigResource(kind, name), {})


def _shown(
    ctx: Context, definition: Definition, entry: ConfigEntry, resource: DescribeConfigsResource, *, synonyms: bool
) -> DescribeConfigsResourceResult:
    of_broker = resource.resource_type == Resource.BROKER
    secret = definition.sensitive or (of_broker and definition.type is Type.UNKNOWN)
    return DescribeConfigsResourceResult(
        name=definition.name,
        value=None if secret else entry.value,
        read_only=of_broker and definition.mode is Mode.READ_ONLY,
        # Version 0 has is_default instead of the source; Kafka 3.9 leaves it false for all.
        config_source=entry.source,
        is_sensitive=secret,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(word.name, None if secret else word.value, word.source)
            for word in (entry.synonyms if synonyms else ())
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
