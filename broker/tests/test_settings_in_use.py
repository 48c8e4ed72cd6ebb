"""The list of broker configurations in use has exactly those that the product reads."""

import re
from pathlib import Path

from odradek_controller.configs.in_use import IN_USE
from odradek_controller.configs.table import Release, Resource, definitions

ROOT = Path(__file__).parents[2]
READ = re.compile(r"\b(?:text|optional_text|integer|number|boolean|words|flag)\(\s*(?:image, )?\"([a-z.]+)\"")


def test_every_configuration_that_is_read_is_listed_as_in_use() -> None:
    known = {name for release in Release for name in definitions(Resource.BROKER, release)}
    sources = [
        path.read_text() for part in ("broker/odradek_broker", "kit/odradek") for path in (ROOT / part).rglob("*.py")
    ]
    sources += [path.read_text() for path in (ROOT / "controller/odradek_controller/commands").glob("*.py")]
    read = {name for source in sources for name in READ.findall(source)}
    assert len(read) > 50
    assert (read & known) - IN_USE == set()
