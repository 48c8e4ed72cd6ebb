"""docs/compatibility.md from the tables that the broker itself reads: `python tools/compatibility.py`.

APIs are in the table of dispatch and ApiVersions, topic settings in the one of what has an effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from odradek_broker.apis.delayed_fetch import SLICE as FETCH_SLICE
from odradek_broker.apis.table import TABLE
from odradek_broker.config import OUR_NUMBERS, REQUEST_ELEMENTS
from odradek_broker.network.routes import UNDIVIDED_PART, elements_max
from odradek_controller.configs.in_use import TOPIC_IN_ANOTHER_WAY, TOPIC_WITHOUT_EFFECT
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

LONG_REQUESTS = f"""
## Requests with many elements

Kafka serves a request of any shape up to `socket.request.max.bytes`. One thread serves all clients of Odradek, so that
a long request is decoded on another thread and handled in slices, with other requests in between. An element is an
entry of an array, a tagged field, or 4,096 bytes of a string; records do not count. The connection of a request with
more elements than the limit is closed, and the log names the limit. A limit is `odradek.request.elements.max`
({OUR_NUMBERS[REQUEST_ELEMENTS]:,} unless it is set), or the part of it in this table. Requests that only brokers send
have no limit.

The slices of one request are handled as requests that follow each other: a topic that CreateTopics names twice may be
answered with TOPIC_ALREADY_EXISTS instead of INVALID_REQUEST, and some of the offsets of an OffsetCommit may be
committed when the group rebalances and refuses the others.

| API | elements in one slice | limit |
|---|---|---|
"""

SETTINGS = """
## Topic settings without effect

All other topic settings of Kafka 4.3 and 3.9 take effect, on each way a topic can come by them: its own, altered while
the broker runs, or the default of the brokers, dynamic or not. A start warns of settings of brokers without effect.

| setting | what becomes of it |
|---|---|
"""

IN_ANOTHER_WAY = """
## Topic settings that work in another way

| setting | how |
|---|---|
"""


def page() -> str:
    """The whole page, as Markdown."""
    served = "".join(_row(APIS[key]) for key in sorted(TABLE))
    clients = [api for key, api in sorted(APIS.items()) if key not in TABLE and "broker" in _listeners(api)]
    not_served = NOT_SERVED + ", ".join(api.name for api in clients) + ".\n"
    settings = SETTINGS + _settings(TOPIC_WITHOUT_EFFECT) + IN_ANOTHER_WAY + _settings(TOPIC_IN_ANOTHER_WAY)
    return HEAD + served + not_served + LONG_REQUESTS + _long_requests() + settings


def _long_requests() -> str:
    apis = [(APIS[key].name, TABLE[key]) for key in sorted(TABLE) if not TABLE.is_inter_broker(key)]
    whole = OUR_NUMBERS[REQUEST_ELEMENTS]
    lines = [
        f"| {name} | {FETCH_SLICE if api.slices is None else api.slices.elements:,} | {elements_max(api, whole):,} |\n"
        for name, api in apis
        if api.slices is not None or api.elements_part is not None
    ]
    rest = f"| all others | are not divided | {whole // UNDIVIDED_PART:,} |\n"
    return "".join(lines) + rest


def _settings(found: Mapping[str, str]) -> str:
    return "".join(f"| {name} | {said} |\n" for name, said in sorted(found.items()))


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
