"""ARCHITECTURE.md draws the rooms of the broker as import-linter holds them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOM_COLUMNS = 38
"""The width of the rooms in the picture; their descriptions follow."""


def layers() -> list[list[str]]:
    """The layers of the broker in pyproject.toml, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rooms,) = (each for each in contracts if each.get("containers") == ["odradek_broker"])
    return [re.split(r" [|:] ", layer) for layer in rooms["layers"]]


def test_the_picture_has_the_rooms_of_the_broker_in_their_order() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    picture = text.partition("## The rooms of the broker")[2].partition("\n## ")[0]
    *rooms, modules = (line for line in picture.splitlines() if re.match(r" {4,}[a-z]", line))
    *expected_rooms, expected_modules = layers()
    assert [re.findall(r"(\w+)(?:\.py|/)", line[:ROOM_COLUMNS]) for line in rooms] == expected_rooms
    assert set(re.findall(r"\w+", modules)) <= set(expected_modules)
