"""Tests share code through modules that are no tests, and planted bugs replace only public names of the product."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = frozenset({".venv", "build", "dist"})


def _modules(pattern: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in (folder for folder in sorted(ROOT.iterdir()) if folder.is_dir() and folder.name not in GENERATED):
        for path in sorted(folder.rglob("*.py")):
            if path.match(pattern):
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def _imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_no_module_imports_a_test_module() -> None:
    files = {Path(path).stem for path, _ in _modules("test_*.py")}
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
    for path, module in _modules("simulation/test_planted_*.py"):
        for node in ast.walk(module):
            name = ""
            if isinstance(node, ast.Attribute):
                name = node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                name = node.value
            if name.startswith("_") and not name.startswith("__") and name != "_replace":
                found.append(f"{path}:{node.lineno}: {name}")
    assert found == []
