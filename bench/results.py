"""bench/results.md: a summary, which is written by hand, and below it the runs that it summarizes.

Owns where the runs begin on the page; `table` formats them.
"""

from __future__ import annotations

from pathlib import Path

RESULTS = Path(__file__).with_name("results.md")
_RUNS = "\n## Runs\n"


def with_runs(page: str, runs: str) -> str:
    """Replace the runs on the page, and keep everything above them; without the heading, append it with the runs."""
    above = page.partition(_RUNS)[0].rstrip("\n")
    return f"{above}\n{_RUNS}\n{runs}"
