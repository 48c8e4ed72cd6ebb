"""The effective value of a configuration, its source, and its synonyms.

Owns the order of the layers: topic override, dynamic broker, dynamic default broker, static (file, command line),
default; within each layer the synonyms of the name in order. Values are texts. The handler of a request removes
sensitive values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import dropwhile
from typing import NamedTuple

from .definition import Definition
from .synonyms import BROKER_SYNONYMS, GROUP_SYNONYMS, TOPIC_SYNONYMS, Synonyms, unchanged
from .table import Release, Resource, defaults, definitions


class ConfigSource(IntEnum):
    """The source of a value, with the numbers of DescribeConfigs."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigSynonym(NamedTuple):
    """The value of a configuration in one layer, with its name in that layer."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """An effective configuration: its value, its source, and all layers that have a value, the effective one first.

    As in DescribeConfigs, source and synonyms begin with the first layer that sets the first name: the configuration's
    own, or for a topic its first broker synonym. So a `retention.ms` whose value comes from `log.retention.hours` has
    the source DEFAULT and no synonyms.
    """

    name: str
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    create_topics_source: ConfigSource = ConfigSource.DEFAULT
    """The source of the value in a CreateTopics response, which counts all synonyms."""


_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """The layers of one broker's configuration, the strongest first."""

    dynamic: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    static: Mapping[str, str] = field(default_factory=dict)
    release: Release = Release.KAFKA_4_3

    def _candidates(self, synonyms: Synonyms) -> Iterator[tuple[ConfigSynonym, str | None]]:
        """Return each value in the layers, the strongest first, and the same value in the unit of the first name."""
        for source, layer in (
            (ConfigSource.DYNAMIC_BROKER, self.dynamic),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (ConfigSource.STATIC_BROKER, self.static),
        ):
            for name, translate in synonyms if layer else ():
                if name in layer:
                    yield ConfigSynonym(name, layer[name], source), translate(layer[name])
        known = defaults(Resource.BROKER, self.release)
        for name, translate in synonyms:
            default = known.get(name)
            if default is not None:
                yield ConfigSynonym(name, default, ConfigSource.DEFAULT), translate(default)

    def broker(self, name: str) -> ConfigEntry:
        """Return the effective broker configuration; an unknown name that is not set has the value None."""
        return self._entry(name, BROKER_SYNONYMS.get(name, ((name, unchanged),)), translated=False)

    def value(self, name: str) -> str | None:
        """Return the value of a broker configuration or else of its synonyms (`log.retention.ms` from hours)."""
        synonyms = BROKER_SYNONYMS.get(name, ((name, unchanged),))
        return next((value for _, value in self._candidates(synonyms)), None)

    def _entry(self, name: str, synonyms: Synonyms, *, translated: bool) -> ConfigEntry:
        """Return the effective value. With `translated` every synonym counts, in the unit of the first name;
        otherwise only the name itself."""
        found = list(self._candidates(synonyms))
        if not found:
            return ConfigEntry(name, None, ConfigSource.DEFAULT, (), ConfigSource.DEFAULT)
        first = synonyms[0][0]
        named = tuple(synonym for synonym, _ in dropwhile(lambda candidate: candidate[0].name != first, found))
        value = found[0][1] if translated else (named[0].value if named else None)
        source = named[0].source if named else ConfigSource.DEFAULT
        return ConfigEntry(name, value, source, named, found[0][0].source)

    def topic(self, definition: Definition, overrides: Mapping[str, str] = _NOTHING) -> ConfigEntry:
        """Return the effective topic configuration with these overrides of the topic."""
        name = definition.name
        if name in TOPIC_SYNONYMS:
            below = self._entry(name, TOPIC_SYNONYMS[name], translated=True)
        else:
            below = ConfigEntry(name, definition.default, ConfigSource.DEFAULT, (), ConfigSource.DEFAULT)
        return _overridden(below, overrides, ConfigSource.TOPIC)

    def group(self, definition: Definition, overrides: Mapping[str, str] = _NOTHING) -> ConfigEntry:
        """Return the effective group configuration with these overrides of the group."""
        name = definition.name
        if name in GROUP_SYNONYMS:
            below = self._entry(name, GROUP_SYNONYMS[name], translated=True)
        else:
            default = ConfigSynonym(name, definition.default, ConfigSource.DEFAULT)
            below = ConfigEntry(name, definition.default, ConfigSource.DEFAULT, (default,), ConfigSource.DEFAULT)
        return _overridden(below, overrides, ConfigSource.GROUP)

    def topic_entries(self, overrides: Mapping[str, str] = _NOTHING) -> list[ConfigEntry]:
        """Return all topic configurations except internal ones, sorted by name."""
        rows = definitions(Resource.TOPIC, self.release).values()
        return [self.topic(row, overrides) for row in rows if not row.internal]

    def topic_values(self, overrides: Mapping[str, str] = _NOTHING) -> dict[str, str]:
        """Return the effective values of all topic configurations, internal ones included, by name."""
        entries = (self.topic(row, overrides) for row in definitions(Resource.TOPIC, self.release).values())
        return {entry.name: entry.value for entry in entries if entry.value is not None}


def _overridden(below: ConfigEntry, overrides: Mapping[str, str], source: ConfigSource) -> ConfigEntry:
    if below.name not in overrides:
        return below
    top = ConfigSynonym(below.name, overrides[below.name], source)
    return ConfigEntry(below.name, top.value, source, (top, *below.synonyms), source)
