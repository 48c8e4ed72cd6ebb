"""docs/compatibility.md from the table that dispatch and ApiVersions are read from: `python tools/compatibility.py`."""

from __future__ import annotations

from pathlib import Path

from odradek_broker.apis.table import TABLE
from odradek_wire.apis import APIS, ApiInfo

PAGE = Path(__file__).parent.parent / "docs" / "compatibility.md"

HEAD = """\
# Which APIs are served

Written by `make docs` from `odradek_broker.apis.table`; a test holds it to that. The default is the union of Kafka 3.9
and 4.3; with `--emulate 3.9|4.0|4.3` ApiVersions answers as that release, and a request for what that release has
and Odradek does not serve is answered with UNSUPPORTED_VERSION.

| API | key | served | Kafka 3.9.1 | Kafka 4.3.0 | what it leaves out |
|---|---|---|---|---|---|
"""

NOT_SERVED = """
## Not served, and therefore not advertised

"""


def page() -> str:
    """The whole page, as Markdown."""
    served = "".join(_row(APIS[key]) for key in sorted(TABLE))
    clients = [api for key, api in sorted(APIS.items()) if key not in TABLE and "broker" in _listeners(api)]
    return HEAD + served + NOT_SERVED + ", ".join(api.name for api in clients) + ".\n"


def _row(api: ApiInfo) -> str:
    served, notes = _versions(TABLE.versions(api.key)), TABLE[api.key].notes
    known = (_versions(api.kafka_3_9), _versions(api.kafka_4_3))
    return f"| {api.name} | {int(api.key)} | {served} | {known[0]} | {known[1]} | {notes} |\n"


def _versions(versions: tuple[int, int] | None) -> str:
    if versions is None:
        return "–"
    low, high = versions
    return str(low) if low == high else f"{low}–{high}"


def _listeners(api: ApiInfo) -> frozenset[str]:
    return api.listeners_3_9 | api.listeners_4_3


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
