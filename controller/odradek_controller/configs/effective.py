"""The effective value of a configuration, where it comes from, and what stands behind it.

Owns the order of the layers: topic override, dynamic broker, dynamic default broker, static (file, command line),
default; within each layer a name's synonyms in order. Values are texts; sensitive ones are hidden by whoever answers a
client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from .definition import Definition
from .synonyms import BROKER_SYNONYMS, GROUP_SYNONYMS, TOPIC_SYNONYMS, Synonyms, same
from .table import Release, Resource, defaults, definitions


class Source(IntEnum):
    """Where a value comes from, under DescribeConfigs' numbers."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """One layer's word on a configuration, under the name it has in that layer."""

    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """A configuration as it applies: its value, its source, and all layers that name one, the winner first."""

    name: str
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]


_NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """What one broker's configuration is made of, the strongest first."""

    dynamic: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    static: Mapping[str, str] = field(default_factory=dict)
    release: Release = Release.KAFKA_4_3

    def _candidates(self, synonyms: Synonyms) -> Iterator[tuple[Synonym, str | None]]:
        """Each layer's word with its value translated to the meaning of the first name."""
        for source, layer in (
            (Source.DYNAMIC_BROKER, self.dynamic),
            (Source.DYNAMIC_DEFAULT_BROKER, self.dynamic_default),
            (Source.STATIC_BROKER, self.static),
        ):
            for name, translate in synonyms if layer else ():
                if name in layer:
                    yield Synonym(name, layer[name], source), translate(layer[name])
        known = defaults(Resource.BROKER, self.release)
        for name, translate in synonyms:
            default = known.get(name)
            if default is not None:
                yield Synonym(name, default, Source.DEFAULT), translate(default)

    def broker(self, name: str) -> Entry:
        """The effective value of a broker configuration; unknown names have the value None unless someone set them."""
        return self._entry(name, BROKER_SYNONYMS.get(name, ((name, same),)), translated=False)

    def value(self, name: str) -> str | None:
        """The value of a broker configuration with its coarser synonyms translated (`log.retention.ms` from hours)."""
        synonyms = BROKER_SYNONYMS.get(name, ((name, same),))
        return next((value for _, value in self._candidates(synonyms)), None)

    def _entry(self, name: str, synonyms: Synonyms, *, translated: bool) -> Entry:
        found = list(self._candidates(synonyms))
        if not found:
            return Entry(name, None, Source.DEFAULT, ())
        first, meaning = found[0]
        value = meaning if translated else next((word.value for word, _ in found if word.name == name), None)
        source = first.source if translated or first.name == name else Source.DEFAULT
        return Entry(name, value, source, tuple(word for word, _ in found))

    def topic(self, definition: Definition, overrides: Mapping[str, str] = _NOTHING) -> Entry:
        """The effective value of a topic configuration under these overrides of the topic itself."""
        return self._override(definition, overrides, Source.TOPIC, TOPIC_SYNONYMS)

    def group(self, definition: Definition, overrides: Mapping[str, str] = _NOTHING) -> Entry:
        return self._override(definition, overrides, Source.GROUP, GROUP_SYNONYMS)

    def _override(
        self, definition: Definition, overrides: Mapping[str, str], source: Source, synonyms: Mapping[str, Synonyms]
    ) -> Entry:
        name = definition.name
        below = self._entry(name, synonyms.get(name, ()), translated=True)
        if name not in synonyms:
            below = Entry(
                name, definition.default, Source.DEFAULT, (Synonym(name, definition.default, Source.DEFAULT),)
            )
        if name not in overrides:
            return below
        top = Synonym(name, overrides[name], source)
        return Entry(name, top.value, source, (top, *below.synonyms))

    def topic_entries(self, overrides: Mapping[str, str] = _NOTHING) -> list[Entry]:
        """All topic configurations that are described, sorted by name."""
        rows = definitions(Resource.TOPIC, self.release).values()
        return [self.topic(row, overrides) for row in rows if not row.internal]

    def topic_values(self, overrides: Mapping[str, str] = _NOTHING) -> dict[str, str]:
        """Name to effective value for all topic configurations, internal ones included: what a log is opened with."""
        entries = (self.topic(row, overrides) for row in definitions(Resource.TOPIC, self.release).values())
        return {entry.name: entry.value for entry in entries if entry.value is not None}
