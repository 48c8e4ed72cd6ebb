"""The table: Markdown, a line for each piece of work, with ratios, targets, and whether they were met."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from bench.line import ODRADEK, Figures, Line, Target

_NOT_MEASURED = "–"


def markdown(lines: Sequence[Line]) -> str:
    """Lines that compare with the same columns share a table; lines with Odradek alone join the one before them."""
    tables: list[tuple[list[str], list[Line]]] = []
    for line in lines:
        others = [column for column in line.figures if column != ODRADEK]
        if tables and set(others) <= set(tables[-1][0]):
            tables[-1][1].append(line)
        else:
            tables.append((others, [line]))
    return "\n".join(_table(others, members) for others, members in tables)


def _table(others: list[str], lines: Iterable[Line]) -> str:
    head = ["work", "", ODRADEK]
    for column in others:
        head += [column, "ratio"]
    head += ["target", "", ""]
    rows = [head, ["---", "---"] + ["---:"] * (1 + 2 * len(others)) + ["---", "---", "---"]]
    rows += [_cells(line, others) for line in lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _cells(line: Line, others: list[str]) -> list[str]:
    own = line.figures.get(ODRADEK)
    cells = [line.work, line.unit, _figure(own)]
    for column in others:
        figure = line.figures.get(column)
        cells += [_figure(figure), _ratio(own, figure)]
    target = ", ".join(each.text for each in line.targets)
    return [*cells, target, ", ".join(verdict(each, line.figures) for each in line.targets), line.note]


def verdict(target: Target, figures: Figures) -> str:
    """met, missed, or not measured."""
    try:
        return "met" if target.met(figures) else "**missed**"
    except KeyError:
        return _NOT_MEASURED


def _ratio(own: float | None, other: float | None) -> str:
    return f"{_figure(own / other)} ×" if own is not None and other else _NOT_MEASURED


def _figure(figure: float | None) -> str:
    """Three digits that count."""
    if figure is None:
        return _NOT_MEASURED
    if figure == 0:
        return "0"
    digits = max(2 - math.floor(math.log10(abs(figure))), 0)
    return f"{figure:,.{digits}f}"
