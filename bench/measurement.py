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


def at_least(factor: float, other: str = KAFKA) -> Target:
    """The target is at least `factor` times the other broker's figure."""
    return Target(f"≥ {factor:g} ×", lambda figures: figures[ODRADEK] >= factor * figures[other])


def at_most(factor: float, other: str = KAFKA) -> Target:
    """The target is at most `factor` times the other broker's figure."""
    return Target(f"≤ {factor:g} ×", lambda figures: figures[ODRADEK] <= factor * figures[other])


def limit(maximum: float, unit: str) -> Target:
    """The target is at most `maximum`, whatever the other brokers' figures."""
    return Target(f"≤ {maximum:g} {unit}", lambda figures: figures[ODRADEK] <= maximum)


def floor(minimum: float, unit: str) -> Target:
    """The target is at least `minimum`, whatever the other brokers' figures."""
    return Target(f"≥ {minimum:g} {unit}", lambda figures: figures[ODRADEK] >= minimum)


def as_fast_as(factor: float, library: str) -> Target:
    """The target is a time of at most the library's time divided by `factor`."""
    return Target(f"{factor:g} × as fast as {library}", lambda figures: factor * figures[ODRADEK] <= figures[library])


def within(factor: float, library: str) -> Target:
    """The target is a time of at most `factor` times the library's."""
    return Target(f"within {factor:g} × of {library}", lambda figures: figures[ODRADEK] <= factor * figures[library])
