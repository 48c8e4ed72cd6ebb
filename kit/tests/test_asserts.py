"""No package catches a failed `assert`, because `python -O` removes asserts."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path

import pytest

_PACKAGES = ("odradek_wire", "odradek_log", "odradek_controller", "odradek_broker", "odradek", "odradek_pipeline")


def _catches_assertions(node: ast.AST) -> bool:
    if isinstance(node, ast.ExceptHandler):
        caught = node.type
    elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
        caught = ast.Tuple(node.args)
    else:
        return False
    return caught is not None and any(
        isinstance(each, ast.Name) and each.id == "AssertionError" for each in ast.walk(caught)
    )


@pytest.mark.parametrize("package", _PACKAGES)
def test_no_package_catches_a_failed_assert(package: str) -> None:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    caught = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if _catches_assertions(node) and isinstance(node, ast.ExceptHandler | ast.Call)
    ]
    assert caught == []
