"""`make release` refuses files that a release must not contain."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
WHEEL = [
    "odradek/__init__.py",
    "odradek/py.typed",
    "odradek-1.dist-info/METADATA",
    "odradek-1.dist-info/licenses/LICENSE",
]


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "release", module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("files", "wrong"),
    [
        (WHEEL, []),
        ([*WHEEL, "odradek/tests/test_a.py"], ["odradek/tests/test_a.py is only for tests"]),
        ([*WHEEL, "odradek/conftest.py"], ["odradek/conftest.py is only for tests"]),
        (
            [*WHEEL, "zookeeper_double/server.py"],
            ["zookeeper_double/server.py is only for tests", "zookeeper_double is not one of the packages"],
        ),
        ([*WHEEL, "bench/rows.py"], ["bench/rows.py is only for tests", "bench is not one of the packages"]),
        ([*WHEEL, "etc/settings.py"], ["etc is not one of the packages"]),
        (WHEEL[1:], ["odradek is missing"]),
        (WHEEL[:1] + WHEEL[2:], ["odradek/py.typed is missing: type checkers would ignore the package"]),
        (WHEEL[:-1], ["LICENSE is missing"]),
    ],
)
def test_a_wheel_has_its_packages_and_no_test_support(release: ModuleType, files: list[str], wrong: list[str]) -> None:
    assert release.wrong_in_wheel(files, ["kit/odradek"]) == wrong


def test_an_sdist_has_the_documents_and_only_source(release: ModuleType) -> None:
    assert release.wrong_in_sdist(release.IN_SDIST) == []
    assert release.wrong_in_sdist([*release.IN_SDIST[1:], "kit/__pycache__/a.pyc"]) == [
        "LICENSE is missing",
        "kit/__pycache__/a.pyc is not a source file",
    ]


def test_a_bill_of_materials_lists_every_dependency_with_its_version(release: ModuleType) -> None:
    bill = {"components": [{"name": "google_re2", "version": "1.1"}, {"name": "click"}]}
    assert release.wrong_in_bill(bill, ["google-re2", "rich"]) == [
        "rich is not in the bill of materials",
        "click has no version",
    ]
