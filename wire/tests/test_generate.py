"""The generated classes are those of the definitions."""

import pytest

from odradek_wire.generate import MESSAGES, module_source
from odradek_wire.notation import definitions


@pytest.mark.parametrize("definition", definitions())
def test_the_module_is_what_the_definition_generates(definition: str) -> None:
    written = (MESSAGES / f"{definition}.py").read_text()
    assert written == module_source(definition), "run python -m odradek_wire.generate"


def test_no_module_is_without_a_definition() -> None:
    assert {path.stem for path in MESSAGES.glob("*.py")} == {*definitions(), "__init__"}
