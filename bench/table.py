"""The table of results in Markdown: one row per measurement, with ratios, targets and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bench.measurement import ODRADEK, Figures, Measurement, Target

_NOT_MEASURED = "–"


def markdown(measurements: Sequence[Measurement]) -> str:
    """Measurements with the same columns share a table; one of Odradek alone joins the table before it."""
    tables: list[tuple[list[str], list[Measurement]]] = []
    for measurement in measurements:
        others = [column for column in measurement.figures if column != ODRADEK]
        if tables and set(others) <= set(tables[-1][0]):
            tables[-1][1].append(measurement)
        else:
            tables.append((others, [measurement]))
    return "\n".join(_table(others, members) for others, members in tables)


def _table(others: list[str], measurements: Iterable[Measurement]) -> str:
    head = ["work", "", ODRADEK]
    for column in others:
        head += [column, "ratio"]
    head += ["target", "", ""]
    rows = [head, ["---", "---"] + ["---:"] * (1 + 2 * len(others)) + ["---", "---", "---"]]
    rows += [_cells(measurement, others) for measurement in measurements]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cells(measurement: Measurement, others: list[str]) -> list[str]:
    own = measurement.figures.get(ODRADEK)
    cells = [measurement.work, measurement.unit, _figure(own)]
    for column in others:
        figure = measurement.figures.get(column)
        cells += [_figure(figure), _ratio(own, figure)]
    target = ", ".join(each.text for each in measurement.targets)
    verdicts = ", ".join(verdict(each, measurement.figures) for each in measurement.targets)
    return [*cells, target, verdicts, measurement.note]


def verdict(target: Target, figures: Figures) -> str:
    """Return "met", "missed" in bold, or a dash if a figure is missing."""
    try:
        return "met" if target.met(figures) else "**missed**"
    except KeyError:
        return _NOT_MEASURED


def _ratio(own: float | None, other: float | None) -> str:
    return f"{_figure(own / other)} ×" if own is not None and other else _NOT_MEASURED


def _figure(figure: float | None) -> str:
    """Format with three significant digits."""
    if figure is None:
        return _NOT_MEASURED
    if figure == 0:
        return "0"
    digits = max(2 - math.floor(math.log10(abs(figure))), 0)
    return f"{figure:,.{digits}f}"
