"""The effective value of a configuration, where it comes from, and what stands behind it.

Owns the order of the layers: topic override, dynamic broker, dynamic default broker, static (file, command line),
default; within each layer a name's synonyms in order. Values are texts; sensitive ones are hidden by whoever answers a
client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import dropwhile
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
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    """One layer's word on a configuration, under the name it has in that layer."""

    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """A configuration as it applies: its value, its source, and the layers that name one, the winner first.

    As in DescribeConfigs, layers before the first that has the name (or, for a topic, its first broker name) are not
    told: a `retention.ms` that follows from `log.retention.hours` is a default without synonyms.
    """

    name: str
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]
    resolved: Source = Source.DEFAULT
    """Where the value really comes from, as CreateTopics tells it."""


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
        """`translated`: the value of all layers, in the meaning of the first name; otherwise only what has the name."""
        found = list(self._candidates(synonyms))
        if not found:
            return Entry(name, None, Source.DEFAULT, (), Source.DEFAULT)
        first = synonyms[0][0]
        told = tuple(word for word, _ in dropwhile(lambda candidate: candidate[0].name != first, found))
        value = found[0][1] if translated else (told[0].value if told else None)
        source = told[0].source if told else Source.DEFAULT
        return Entry(name, value, source, told, found[0][0].source)

    def topic(self, definition: Definition, overrides: Mapping[str, str] = _NOTHING) -> Entry:
        """The effective value of a topic configuration under these overrides of the topic itself."""
        name = definition.name
        if name in TOPIC_SYNONYMS:
            below = self._entry(name, TOPIC_SYNONYMS[name], translated=True)
        else:
            below = Entry(name, definition.default, Source.DEFAULT, (), Source.DEFAULT)
        return _overridden(below, overrides, Source.TOPIC)

    def group(self, definition: Definition, overrides: Mapping[str, str] = _NOTHING) -> Entry:
        """The effective value of a group configuration under these overrides of the group itself."""
        name = definition.name
        if name in GROUP_SYNONYMS:
            below = self._entry(name, GROUP_SYNONYMS[name], translated=True)
        else:
            default = Synonym(name, definition.default, Source.DEFAULT)
            below = Entry(name, definition.default, Source.DEFAULT, (default,), Source.DEFAULT)
        return _overridden(below, overrides, Source.GROUP)

    def topic_entries(self, overrides: Mapping[str, str] = _NOTHING) -> list[Entry]:
        """All topic configurations that are described, sorted by name."""
        rows = definitions(Resource.TOPIC, self.release).values()
        return [self.topic(row, overrides) for row in rows if not row.internal]

    def topic_values(self, overrides: Mapping[str, str] = _NOTHING) -> dict[str, str]:
        """Name to effective value for all topic configurations, internal ones included: what a log is opened with."""
        entries = (self.topic(row, overrides) for row in definitions(Resource.TOPIC, self.release).values())
        return {entry.name: entry.value for entry in entries if entry.value is not None}


def _overridden(below: Entry, overrides: Mapping[str, str], source: Source) -> Entry:
    if below.name not in overrides:
        return below
    top = Synonym(below.name, overrides[below.name], source)
    return Entry(below.name, top.value, source, (top, *below.synonyms), source)
