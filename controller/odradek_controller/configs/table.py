"""The table of all configurations, by type of resource and release.

Owns the look-up of a definition, the parsing and validation of a value, and the nearest known name. Leaves layers to
`effective`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from functools import cache

from .definition import Definition, InvalidConfigError, Mode, Type, Value
from .valid import invalid


class Resource(IntEnum):
    """The type of the resource that a configuration belongs to, with Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Release(Enum):
    """The releases that have a table of their own. Kafka 4.0 uses the table of 4.3."""

    KAFKA_3_9 = "3.9"
    KAFKA_4_3 = "4.3"


@cache
def definitions(kind: Resource, release: Release = Release.KAFKA_4_3) -> Mapping[str, Definition]:
    """Return the definitions by name, sorted; empty for types without any (loggers; groups in 3.9)."""
    from . import topic  # imported here, so that a start loads only the tables that it uses

    rows: tuple[Definition, ...] = ()
    match kind:
        case Resource.TOPIC:
            rows = topic.TOPIC
        case Resource.GROUP if release is not Release.KAFKA_3_9:
            rows = topic.GROUP
        case Resource.CLIENT_METRICS:
            rows = topic.CLIENT_METRICS
        case Resource.BROKER:
            rows = _broker_rows()
    found = {row.name: row for row in rows}
    if release is Release.KAFKA_3_9 and kind in (Resource.TOPIC, Resource.BROKER):
        from . import kafka_39

        found = {name: row for name, row in found.items() if name not in kafka_39.NOT_IN_39}
        found.update((row.name, row) for row in (kafka_39.TOPIC_39 if kind is Resource.TOPIC else kafka_39.BROKER_39))
    return {name: found[name] for name in sorted(found)}


def _broker_rows() -> tuple[Definition, ...]:
    from . import broker_coordinators, broker_log, broker_remote, broker_security, broker_server

    return (
        *broker_server.SERVER,
        *broker_log.LOG,
        *broker_coordinators.COORDINATORS,
        *broker_security.SECURITY,
        *broker_remote.REMOTE,
    )


@cache
def defaults(kind: Resource, release: Release = Release.KAFKA_4_3) -> Mapping[str, str | None]:
    """Return the default values by name."""
    return {name: row.default for name, row in definitions(kind, release).items()}


def parse(definition: Definition, text: str) -> Value:
    """Return the value of the text. Raises InvalidConfigError, with Kafka's message, for an invalid one."""
    value = parse_type(definition.name, text, definition.type)
    if definition.check is not None:
        definition.check(definition.name, value)
    return value


def parse_type(name: str, text: str, kind: Type) -> Value:
    """Parse as ConfigDef.parseType does: it trims texts, splits lists at commas, and checks the range of numbers."""
    original, text = text, text.strip() if kind is not Type.PASSWORD else text
    match kind:
        case Type.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise invalid(name, original, "Expected value to be either true or false")
            return text.lower() == "true"
        case Type.INT | Type.SHORT | Type.LONG:
            return _parse_integer(name, original, kind)
        case Type.DOUBLE:
            return _parse_double(name, original)
        case Type.LIST:
            return [word.strip() for word in text.split(",")] if text else []
        case _:
            return text


_BITS = {Type.SHORT: 15, Type.INT: 31, Type.LONG: 63}


def _parse_integer(name: str, original: str, kind: Type) -> int:
    text = original.strip()
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits.isdecimal():
        number = int(text)
        if -(1 << _BITS[kind]) <= number < 1 << _BITS[kind]:
            return number
    raise invalid(name, original, f"Not a number of type {kind.name}")


def _parse_double(name: str, original: str) -> float:
    try:
        return float(original.replace("_", "x"))  # Java refuses the underscores that Python accepts
    except ValueError:
        raise invalid(name, original, "Not a number of type DOUBLE") from None


def validate(kind: Resource, name: str, text: str, release: Release = Release.KAFKA_4_3) -> Value:
    """Return the parsed value. Raises InvalidConfigError for an invalid value, and for an unknown name, with the
    nearest known one."""
    definition = definitions(kind, release).get(name)
    if definition is None:
        near = nearest(kind, name, release)
        raise InvalidConfigError(
            f"Unknown {_RESOURCE_NAMES[kind]} configuration {name!r}" + (f"; did you mean {near!r}?" if near else "")
        )
    return parse(definition, text)


_RESOURCE_NAMES = {Resource.TOPIC: "topic", Resource.BROKER: "broker", Resource.GROUP: "group"}
_RESOURCE_NAMES |= {Resource.CLIENT_METRICS: "client-metrics", Resource.BROKER_LOGGER: "logger", Resource.UNKNOWN: ""}


def nearest(kind: Resource, name: str, release: Release = Release.KAFKA_4_3) -> str | None:
    """Return the known name that is most similar, or None if none is similar."""
    from difflib import get_close_matches

    known = definitions(kind, release)
    dotted = name.strip().lower().replace("_", ".").replace("-", ".")
    if dotted in known:
        return dotted
    found = get_close_matches(dotted, known, n=1, cutoff=0.75)
    return found[0] if found else None


def update_mode(name: str, release: Release = Release.KAFKA_4_3) -> Mode:
    """Return the update mode of a broker configuration. An unknown name belongs to a plug-in: it is cluster-wide."""
    if name.startswith("listener.name."):
        return Mode.PER_BROKER
    definition = definitions(Resource.BROKER, release).get(name)
    return Mode.CLUSTER_WIDE if definition is None else definition.mode
