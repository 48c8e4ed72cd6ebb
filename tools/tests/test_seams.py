"""Tests share code by modules of their own, and planted bugs replace public names of the product only."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _modules(pattern: str) -> Iterator[tuple[str, ast.Module]]:
    listed = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, check=True, capture_output=True, text=True)
    for path in listed.stdout.split():
        yield path, ast.parse((ROOT / path).read_text())


def _imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_module_imports_a_test_module() -> None:
    files = {Path(path).stem for path, _ in _modules("*test_*.py") if Path(path).name.startswith("test_")}
    found = [
        f"{path}: {name}"
        for path, module in _modules("*.py")
        for name in _imported(module)
        if files & set(name.split("."))
    ]
    assert found == []


def test_planted_bugs_touch_public_names_only() -> None:
    """`_replace` is public in a named tuple."""
    found = []
    for path, module in _modules("broker/simulation/test_planted_*.py"):
        for node in ast.walk(module):
            name = ""
            if isinstance(node, ast.Attribute):
                name = node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                name = node.value
            if name.startswith("_") and not name.startswith("__") and name != "_replace":
                found.append(f"{path}:{node.lineno}: {name}")
    assert found == []
