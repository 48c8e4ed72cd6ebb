"""One row of the table: a piece of work, a figure for each broker or library, and the targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

ODRADEK = "Odradek"
KAFKA = "Apache Kafka 4.3.0"

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Target:
    """The target for Odradek's figure. `met` raises KeyError if a figure that it compares is missing."""

    text: str
    met: Callable[[Figures], bool]


@dataclass(frozen=True)
class Measurement:
    """Figures in one unit, by broker or library. A missing figure could not be measured."""

    work: str
    unit: str
    figures: Figures
    targets: tuple[Target, ...] = ()
    note: str = ""


def at_least(factor: float, of: str = KAFKA) -> Target:
    """The target is at least `factor` times the other broker's figure."""
    return Target(f"≥ {factor:g} ×", lambda figures: figures[ODRADEK] >= factor * figures[of])


def at_most(factor: float, of: str = KAFKA) -> Target:
    """The target is at most `factor` times the other broker's figure."""
    return Target(f"≤ {factor:g} ×", lambda figures: figures[ODRADEK] <= factor * figures[of])


def limit(most: float, unit: str) -> Target:
    """The target is at most `most`, whatever the other brokers' figures."""
    return Target(f"≤ {most:g} {unit}", lambda figures: figures[ODRADEK] <= most)


def floor(least: float, unit: str) -> Target:
    """The target is at least `least`, whatever the other brokers' figures."""
    return Target(f"≥ {least:g} {unit}", lambda figures: figures[ODRADEK] >= least)


def as_fast_as(factor: float, library: str) -> Target:
    """The target is a time: `factor` of Odradek's fit into one of the library's."""
    return Target(f"{factor:g} × as fast as {library}", lambda figures: factor * figures[ODRADEK] <= figures[library])


def within(factor: float, library: str) -> Target:
    """The target is a time of at most `factor` of the library's."""
    return Target(f"within {factor:g} × of {library}", lambda figures: figures[ODRADEK] <= factor * figures[library])
