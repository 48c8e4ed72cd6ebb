"""The compatibility page says what the broker does."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import compatibility


def test_the_page_is_what_the_table_of_apis_says() -> None:
    assert compatibility.PAGE.read_text(encoding="utf-8") == compatibility.page()
