"""The compatibility page agrees with the broker's tables."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import compatibility

from odradek_broker.apis.table import TABLE
from odradek_wire.apis import APIS


def test_the_compatibility_page_matches_the_table_of_apis() -> None:
    assert compatibility.PAGE.read_text(encoding="utf-8") == compatibility.page()


def test_every_api_module_lists_versions_behaviour_and_differences() -> None:
    for key in TABLE:
        docstring = sys.modules[TABLE[key].handle.__module__].__doc__ or ""
        assert docstring.startswith(f"{APIS[key].name} (key {int(key)}): ")
        sections = [line.partition(":")[0] for line in docstring.splitlines() if re.match(r"[A-Z][A-Za-z ]+:", line)]
        wanted = ["Versions", "Behaviour", "Differences from Kafka"]
        assert [each for each in sections if each in wanted] == wanted, key
