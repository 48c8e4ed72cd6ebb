"""Validation of a topic's overrides, in the order and with the messages of Kafka's LogConfig."""

from __future__ import annotations

from collections.abc import Mapping

from odradek_wire.errors import ErrorCode

from ..configs.definition import InvalidConfigError
from ..configs.effective import BrokerLayers
from ..configs.table import Resource, definitions, parse
from ..levels import Levels
from .context import Refusal

_REMOTE_LOG_SWITCHES = ("remote.log.delete.on.disable", "remote.log.copy.disable")


def check_topic_configs(overrides: Mapping[str, str | None], layers: BrokerLayers, levels: Levels) -> Refusal | None:
    """Return the first error in the overrides that a topic would have, or None."""
    if not overrides:
        return None
    nulls = [name for name, value in overrides.items() if value is None]
    if nulls:
        return Refusal(ErrorCode.INVALID_CONFIG, "Null value not supported for topic configs: " + ",".join(nulls))
    known = definitions(Resource.TOPIC, layers.release)
    values = {name: value for name, value in overrides.items() if value is not None}
    for name in values:
        if name not in known:
            return Refusal(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    for name, value in values.items():
        try:
            parse(known[name], value)
        except InvalidConfigError as error:
            return Refusal(ErrorCode.INVALID_CONFIG, str(error))
    return _check_together(values, layers, levels)


def _check_together(overrides: Mapping[str, str], layers: BrokerLayers, levels: Levels) -> Refusal | None:
    known = definitions(Resource.TOPIC, layers.release)

    def effective(name: str) -> str:
        return (layers.topic(known[name], overrides).value or "").strip()

    if "min.compaction.lag.ms" in overrides or "max.compaction.lag.ms" in overrides:
        low, high = int(effective("min.compaction.lag.ms")), int(effective("max.compaction.lag.ms"))
        if low > high:
            message = f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
            return Refusal(ErrorCode.INVALID_CONFIG, message)
    if not levels.remote_log_switches and any(effective(name).lower() == "true" for name in _REMOTE_LOG_SWITCHES):
        switches = " or ".join(f"`{name}`" for name in _REMOTE_LOG_SWITCHES)
        return Refusal(ErrorCode.INVALID_CONFIG, f"It is invalid to set {switches} under Zookeeper's mode.")
    if effective("remote.storage.enable").lower() == "true":
        return Refusal(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )
    return None
