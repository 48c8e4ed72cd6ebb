"""The rule for node ids in requests."""

from __future__ import annotations

import re

_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,10})")


def parse_node_id(text: str) -> int | None:
    """Return the id, or None if Java's `Integer.parseInt` refuses the text.

    The length is checked first, because Python's `int` raises for very long texts.
    """
    found = _INTEGER.fullmatch(text)
    number = 1 << 31 if found is None else int(found[1] + found[2])
    return number if -(1 << 31) <= number < 1 << 31 else None
