"""Integers in the texts of requests, such as node ids, read as Java reads them."""

from __future__ import annotations

import re

_INTEGER = re.compile(r"([+-]?)0*([0-9]{1,10})")


def parse_int(text: str) -> int | None:
    """Return the number, or None if Java's `Integer.parseInt` refuses the text.

    The length is checked first, because Python's `int` raises for very long texts.
    """
    found = _INTEGER.fullmatch(text)
    number = 1 << 31 if found is None else int(found[1] + found[2])
    return number if -(1 << 31) <= number < 1 << 31 else None
