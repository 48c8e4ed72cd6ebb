"""One line of the table: what was measured, a figure for each broker or library, and what was aimed at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

ODRADEK = "Odradek"
KAFKA = "Apache Kafka 4.3.0"

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Target:
    """What a figure of Odradek's should be; `met` needs the figures that it compares."""

    text: str
    met: Callable[[Figures], bool]


@dataclass(frozen=True)
class Line:
    """Figures in one unit by column, Odradek's among them; a column that is missing could not be measured."""

    work: str
    unit: str
    figures: Figures
    targets: tuple[Target, ...] = ()
    note: str = ""


def at_least(factor: float, of: str = KAFKA) -> Target:
    """More is better."""
    return Target(f"≥ {factor:g} ×", lambda figures: figures[ODRADEK] >= factor * figures[of])


def at_most(factor: float, of: str = KAFKA) -> Target:
    """Less is better."""
    return Target(f"≤ {factor:g} ×", lambda figures: figures[ODRADEK] <= factor * figures[of])


def limit(most: float, unit: str) -> Target:
    """Whatever the others do."""
    return Target(f"≤ {most:g} {unit}", lambda figures: figures[ODRADEK] <= most)


def floor(least: float, unit: str) -> Target:
    """Whatever the others do; more is better."""
    return Target(f"≥ {least:g} {unit}", lambda figures: figures[ODRADEK] >= least)


def as_fast_as(factor: float, library: str) -> Target:
    """Times: so many of ours go into one of theirs."""
    return Target(f"{factor:g} × as fast as {library}", lambda figures: factor * figures[ODRADEK] <= figures[library])


def within(factor: float, library: str) -> Target:
    """Times: at most so many of theirs make one of ours."""
    return Target(f"within {factor:g} × of {library}", lambda figures: figures[ODRADEK] <= factor * figures[library])
