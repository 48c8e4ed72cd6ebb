"""A whole run of the bench replaces the runs in bench/results.md, and keeps the summary."""

from __future__ import annotations

import pytest
from bench.results import RESULTS, with_runs

NEW = "| work | new |\n"


def test_new_runs_replace_the_runs_and_keep_the_summary() -> None:
    page = "# Results\n\n## Summary\n\nfast ⁰\n\n⁰ Written by hand.\n\n## Runs\n\n| work | old |\n\nMeasured before.\n"
    expected = "# Results\n\n## Summary\n\nfast ⁰\n\n⁰ Written by hand.\n\n## Runs\n\n| work | new |\n"
    assert with_runs(page, NEW) == expected
    assert with_runs(expected, NEW) == expected


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_page_without_runs_keeps_its_text(end: str) -> None:
    assert with_runs("# Results" + end, NEW) == "# Results\n\n## Runs\n\n| work | new |\n"


def test_the_results_have_one_heading_for_the_runs_below_the_summary() -> None:
    headings = [line for line in RESULTS.read_text().splitlines() if line.startswith("## ")]
    assert headings == ["## Summary", "## Runs"]
