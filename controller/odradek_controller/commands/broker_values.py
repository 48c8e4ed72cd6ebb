"""Checks of a broker's dynamic configuration that need more than one value, or more than the type of a value.

Owns the rules of Kafka's reconfigurable parts of a broker: thread pools (DynamicThreadPool), the log cleaner, the log
(DynamicLogConfig) and connections (DynamicListenerConfig, SocketServer). Leaves types and ranges to `configs.table`,
and the question of where a configuration may be set to `config_rules`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import replace

from odradek_wire.errors import ErrorCode

from ..configs.definition import InvalidConfigError
from ..configs.effective import BrokerLayers
from .context import Refusal
from .integers import parse_int

_POOLS = (
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
    "remote.log.reader.threads",
)
_CLEANER_THREADS, _DEDUPE_BUFFER = "log.cleaner.threads", "log.cleaner.dedupe.buffer.size"
_OVERRIDES = "max.connections.per.ip.overrides"
_OVERRIDE = re.compile(r"[0-9a-zA-Z\-%._:]*:\s*[+-]?[0-9]{1,10}")
_REPORTERS = "metric.reporters"
_CLASSES = frozenset((_REPORTERS, "principal.builder.class", "ssl.engine.factory.class"))
"""Dynamic configurations that name classes. Kafka loads a class when it is set, and refuses one that it cannot load."""
_LOADED = frozenset(
    (
        "org.apache.kafka.common.metrics.JmxReporter",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    )
)
"""The defaults of these configurations: the only classes that can be loaded."""


def check_broker_values(
    values: Mapping[str, str], changed: Set[str], before: BrokerLayers, *, cluster_wide: bool
) -> Refusal | None:
    """Return why a broker may not have these dynamic values, or None.

    `values` replaces the dynamic configuration of the broker, or of all brokers with `cluster_wide`; each value has the
    type of its configuration. Only rules about configurations in `changed` are applied.
    """
    after = replace(before, dynamic_default=values) if cluster_wide else replace(before, dynamic=values)
    set_now = changed & values.keys()
    try:
        for name in sorted(set_now & _CLASSES):
            _check_classes(name, values[name])
        if _OVERRIDES in set_now:
            _check_overrides(values[_OVERRIDES])
        _check_pools(values, set_now, before)
        _check_cleaner(set_now, before, after)
        _check_retention(set_now, after)
        _check_connections(set_now, after)
    except InvalidConfigError as error:
        return Refusal(ErrorCode.INVALID_REQUEST, str(error))
    return None


def _number(layers: BrokerLayers, name: str) -> int:
    return int(layers.value(name) or 0)


def _invalid_dynamic(cause: str) -> InvalidConfigError:
    """Return the error with the text that Kafka's DynamicBrokerConfig puts around the message of the component."""
    return InvalidConfigError(
        f"Invalid value org.apache.kafka.common.config.ConfigException: {cause} for configuration Invalid dynamic "
        "configuration"
    )


def _check_pools(values: Mapping[str, str], set_now: Set[str], before: BrokerLayers) -> None:
    """Check that a change at most doubles or halves a pool; as in Kafka half of 3 is 1."""
    for name in _POOLS:
        if name not in set_now:
            continue
        current, wanted = int(before.value(name) or 1), int(values[name])
        bound = None
        if wanted < current // 2:
            bound = f"value should be at least half the current value {current}"
        if wanted < 1:
            bound = "value should be at least 1"
        if wanted > current * 2:
            bound = f"value should not be greater than double the current value {current}"
        if bound is not None:
            raise _invalid_dynamic(f"Dynamic thread count update validation failed for {name}={wanted}, {bound}")


def _check_cleaner(set_now: Set[str], before: BrokerLayers, after: BrokerLayers) -> None:
    if not set_now & {_CLEANER_THREADS, _DEDUPE_BUFFER}:
        return
    current, wanted = _number(before, _CLEANER_THREADS), _number(after, _CLEANER_THREADS)
    if wanted < 1:
        raise InvalidConfigError(f"{_CLEANER_THREADS} must be at least 1, got {wanted}")
    if _number(after, _DEDUPE_BUFFER) // wanted <= 1 << 20:
        raise InvalidConfigError(f"requirement failed: {_DEDUPE_BUFFER} must be at least 1MB per cleaner thread.")
    if wanted < current // 2:
        raise _invalid_dynamic(f"Log cleaner threads cannot be reduced to less than half the current value {current}")
    if wanted > current * 2:
        raise _invalid_dynamic(
            f"Log cleaner threads cannot be increased to more than double the current value {current}"
        )


def _check_retention(set_now: Set[str], after: BrokerLayers) -> None:
    for name, low in (("log.retention.ms", None), ("log.roll.ms", 1), ("log.roll.jitter.ms", 0)):
        if name not in set_now:
            continue
        value = _number(after, name)
        if low is None and value == 0:
            raise InvalidConfigError(
                f"requirement failed: {name} must be unlimited (-1) or, greater than or equal to 1"
            )
        if low is not None and value < low:
            raise InvalidConfigError(f"requirement failed: {name} must be greater than or equal to {low}")
    for unit in ("ms", "bytes"):
        local, total = f"log.local.retention.{unit}", f"log.retention.{unit}"
        if set_now & {local, total}:
            _check_local_retention(local, _number(after, local), total, _number(after, total))


def _check_local_retention(local: str, value: int, total: str, limit: int) -> None:
    """Check local against total retention: -2 means the total retention, and a negative total sets no limit."""
    if limit < 0 or value == -2:
        return
    if value == -1:
        why = f"Value must not be -1 as {total} value is set as {limit}."
    elif value > limit:
        why = f"Value must not be more than {total} property value: {limit}"
    else:
        return
    raise _invalid_dynamic(f"Invalid value {value} for configuration {local}: {why}")


def _check_connections(set_now: Set[str], after: BrokerLayers) -> None:
    for name in ("max.connections", "max.connection.creation.rate"):
        if name in set_now and _number(after, name) <= 0:
            raise _invalid_dynamic(f"Invalid {name} {after.value(name)}")
    per_ip = "max.connections.per.ip"
    if per_ip in set_now and _number(after, per_ip) == 0 and not after.value(_OVERRIDES):
        raise InvalidConfigError(
            f"requirement failed: {per_ip} can be set to zero only if {_OVERRIDES} property is set."
        )


def _check_overrides(text: str) -> None:
    """Check for a list of `address:count`, separated by commas; the errors are those of Kafka's Java runtime."""
    for word in filter(None, (part.strip() for part in text.split(","))):
        _, colon, count = word.rpartition(":")
        if not colon:
            cause = f"begin 0, end -1, length {len(word)}"
            raise InvalidConfigError(f"Error parsing configuration property '{_OVERRIDES}': {cause}")
        if parse_int(count.strip()) is None:
            raise InvalidConfigError(f'For input string: "{count.strip()}"')
        if not _OVERRIDE.fullmatch(word):
            raise InvalidConfigError(f"{_OVERRIDES} must be a list of address:count, got {word}")


def _check_classes(name: str, text: str) -> None:
    words = [word.strip() for word in text.split(",")] if text or name != _REPORTERS else []
    for word in words:
        if word not in _LOADED:
            raise InvalidConfigError(f"Invalid value {word} for configuration {name}: Class {word} could not be found.")
