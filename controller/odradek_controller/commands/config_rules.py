"""Validation of dynamic configurations: one rule for each type of resource, with Kafka's messages.

Each rule gets all values that the resource would have, and the names that the request sets. Sources:
ConfigAdminManager, ControllerConfigurationValidator, DynamicBrokerConfig, GroupConfig, ClientMetricsConfigs, and the
responses of a running Kafka 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set

from odradek_wire.errors import ErrorCode

from ..configs.definition import InvalidConfigError, Mode
from ..configs.effective import BrokerLayers
from ..configs.table import Resource, definitions, parse, update_mode
from ..image import ClusterImage
from .broker_values import check_broker_values
from .context import CommandContext, Refusal
from .integers import parse_int
from .min_isr import MIN_ISR
from .topic_configs import check_topic_configs
from .topic_names import check_topic_name

Values = Mapping[str, str]
_INVALID = ErrorCode.INVALID_REQUEST


def check_resource(image: ClusterImage, kind: int, name: str, context: CommandContext) -> Refusal | None:
    """Return why there is no such resource, or None."""
    match kind:
        case Resource.TOPIC:
            return _check_topic_exists(image, name)
        case Resource.BROKER:
            return _check_broker_exists(image, name, context)
        case Resource.GROUP if definitions(Resource.GROUP, context.release):
            return None if name else Refusal(_INVALID, "Default group resources are not allowed.")
        case Resource.CLIENT_METRICS:
            return None if name else Refusal(_INVALID, "Subscription name can't be empty")
        case _:
            return Refusal(_INVALID, f"Unknown resource type {kind}")


def _check_topic_exists(image: ClusterImage, name: str) -> Refusal | None:
    if not name:
        return Refusal(_INVALID, "Default topic resources are not allowed.")
    refusal = check_topic_name(name)
    if refusal is None and name not in image.topics:
        return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return refusal


def _check_broker_exists(image: ClusterImage, name: str, context: CommandContext) -> Refusal | None:
    if not name:
        return None
    node_id = parse_int(name)
    if node_id is None:
        return Refusal(_INVALID, f"Node id must be an integer, but it is: {name}")
    if node_id not in image.brokers:
        expected = min(image.brokers, default=context.node_id)
        return Refusal(_INVALID, f"Unexpected broker id, expected {expected}, but received {name}")
    return None


def check_values(
    image: ClusterImage, kind: int, name: str, values: Values, changed: Set[str], context: CommandContext
) -> Refusal | None:
    """Return why the resource cannot have these values, or None; `changed` are the names that the request sets."""
    layers = context.layers(image)
    match kind:
        case Resource.TOPIC:
            return check_topic_configs(values, layers, image.levels)
        case Resource.BROKER:
            return _check_broker(image, name, values, changed, layers)
        case Resource.GROUP:
            return _check_group(values, layers)
        case _:
            return _check_client_metrics(values)


# -- brokers ----------------------------------------------------------------------------------------------------------

_PER_LISTENER = frozenset(
    (
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)
"""Configurations that are dynamic only with the prefix of a listener (SslConfigs.RECONFIGURABLE_CONFIGS)."""


def _check_broker(
    image: ClusterImage, name: str, values: Values, changed: Set[str], layers: BrokerLayers
) -> Refusal | None:
    known = definitions(Resource.BROKER, layers.release)
    read_only = sorted(key for key in changed if update_mode(key, layers.release) is Mode.READ_ONLY)
    if read_only:
        return Refusal(_INVALID, f"Cannot update these configs dynamically: [{', '.join(read_only)}]")
    per_broker = sorted(key for key in changed if key in known and known[key].mode is Mode.PER_BROKER)
    security = [key for key in per_broker if key in _PER_LISTENER]
    if security:
        return Refusal(
            _INVALID,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(security)}]",
        )
    if per_broker and not name:
        return Refusal(
            _INVALID,
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(per_broker)}]",
        )
    for key in changed & known.keys() & values.keys():
        try:
            parse(known[key], values[key])
        except InvalidConfigError as error:
            return Refusal(_INVALID, str(error))
    refusal = check_broker_values(values, changed, layers, cluster_wide=not name)
    if refusal is not None:
        return refusal
    if image.levels.elr_enabled:
        if name and MIN_ISR in changed:
            message = f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled."
            return Refusal(ErrorCode.INVALID_CONFIG, message)
        if not name and MIN_ISR not in values:
            message = f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled."
            return Refusal(ErrorCode.INVALID_CONFIG, message)
    return None


# -- groups -----------------------------------------------------------------------------------------------------------

_GROUP_BOUNDS = (
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.num.standby.replicas",
)


def _check_group(values: Values, layers: BrokerLayers) -> Refusal | None:
    known = definitions(Resource.GROUP, layers.release)
    for name in values:
        if name not in known:
            return Refusal(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
    try:
        for name, value in values.items():
            parse(known[name], value)
    except InvalidConfigError as error:
        return Refusal(ErrorCode.INVALID_CONFIG, str(error))
    for name in _GROUP_BOUNDS:
        refusal = _check_bounds(name, values, layers) if name in values else None
        if refusal is not None:
            return refusal
    return None


def _check_bounds(name: str, values: Values, layers: BrokerLayers) -> Refusal | None:
    """Check the limits that brokers set for groups, such as `group.consumer.min.session.timeout.ms`."""
    kind, _, rest = name.partition(".")
    value = int(values[name])
    low, high = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest.removeprefix('num.')}"
    least, most = layers.value(low), layers.value(high)
    if least is not None and value < int(least):
        return Refusal(ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {low}")
    if most is not None and value > int(most):
        return Refusal(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {high}")
    return None


# -- client metrics ---------------------------------------------------------------------------------------------------

_SELECTORS = frozenset(
    (
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    )
)


def _check_client_metrics(values: Values) -> Refusal | None:
    known = definitions(Resource.CLIENT_METRICS)
    for name in values:
        if name not in known:
            return Refusal(_INVALID, f"Unknown client metrics configuration: {name}")
    try:
        for name, value in values.items():
            parse(known[name], value)
    except InvalidConfigError as error:
        return Refusal(ErrorCode.INVALID_CONFIG, str(error))
    if "interval.ms" in values and not 100 <= int(values["interval.ms"]) <= 3_600_000:
        message = (
            f"Invalid value {values['interval.ms'].strip()} for interval.ms, interval must be between 100 and 3600000"
        )
        return Refusal(_INVALID, f"{message} (1 hour)")
    for pattern in filter(None, (word.strip() for word in values.get("match", "").split(","))):
        selector, equals, expression = pattern.partition("=")
        if not equals or selector.strip() not in _SELECTORS or not _is_pattern(expression.strip()):
            return Refusal(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")
    return None


def _is_pattern(text: str) -> bool:
    try:
        re.compile(text)
    except re.error:
        return False
    return True
