"""Write docs/compatibility.md: `python tools/compatibility.py`.

Reads the broker's table of APIs, the docstrings of their modules, and the table of settings that have an effect.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odradek_broker.apis.api import Api
from odradek_broker.apis.delayed_fetch import SLICE as FETCH_SLICE
from odradek_broker.apis.produce_in_slices import SLICES as PRODUCE_SLICES
from odradek_broker.apis.table import TABLE
from odradek_broker.config import OUR_INTEGERS, REQUEST_ELEMENTS
from odradek_broker.network.routes import UNDIVIDED_DIVISOR, elements_max
from odradek_controller.configs.in_use import TOPIC_IN_ANOTHER_WAY, TOPIC_WITHOUT_EFFECT
from odradek_wire.apis import APIS, ApiInfo, Versions

PAGE = Path(__file__).parent.parent / "docs" / "compatibility.md"

HEAD = """\
# The APIs that Odradek serves

`make docs` writes this page from `odradek_broker.apis`, and a test compares the two. By default Odradek serves
the versions of Kafka 3.9 and of 4.3. With `--emulate 3.9|4.0|4.3` ApiVersions responds as that release, and an API of
that release that Odradek does not serve returns UNSUPPORTED_VERSION.

| API | key | served | Kafka 3.9.1 | Kafka 4.3.0 | differences from Kafka |
|---|---|---|---|---|---|
"""

NOT_SERVED = """
## APIs that Odradek neither serves nor advertises

"""

LONG_REQUESTS = f"""
## Requests with many elements or much work

Kafka serves every request up to `socket.request.max.bytes`. One thread serves all clients of Odradek, so another thread
decodes a long request, and the broker handles it in slices, with other requests in between. An element is an entry of
an array, a tagged field, or 4,096 bytes of a string; records do not count. The broker closes the connection of a
request with more elements than the limit, and logs the limit. A limit is `odradek.request.elements.max`
({OUR_INTEGERS[REQUEST_ELEMENTS]:,} unless it is set), or the part of it in this table. Requests that only brokers send
have no limit.

The broker handles the slices of a request like requests that follow each other: CreateTopics may return
TOPIC_ALREADY_EXISTS in place of INVALID_REQUEST for a topic that it names twice, and OffsetCommit may commit some
offsets before the group rebalances and refuses the others.

A response whose length depends on the state of the broker is made in slices, too: Metadata, OffsetFetch of all offsets
of a group, DescribeGroups, DescribeConfigs, DescribeLogDirs, DescribeProducers, DescribeTopicPartitions, ListGroups and
ListTransactions. Metadata, DescribeTopicPartitions and OffsetFetch of all offsets describe one state; the others, as in
Kafka, may mix the states before and after a change. A Produce counts one more element for each 256 KiB of records.
CreateTopics, CreatePartitions and DeleteTopics add and delete hundreds of replicas in several turns. Some work is not
divided: the batch of one partition in a Produce (60 MB take 0.14 s), the records of one DeleteGroups, and a change of
all leaders or of the configuration of all partitions (about 5 microseconds for each partition).

| API | elements in one slice | limit |
|---|---|---|
"""

DIVIDED_BY_THE_HANDLER = {"Produce": PRODUCE_SLICES.elements, "Fetch": FETCH_SLICE}
"""The elements of one slice in APIs without a divider."""

SETTINGS = """
## Topic settings without effect

All other topic settings of Kafka 4.3 and 3.9 take effect: in CreateTopics, altered while the broker runs, and as the
brokers' default, dynamic or static. A start warns of broker settings without effect.

| setting | effect |
|---|---|
"""

IN_ANOTHER_WAY = """
## Topic settings that work in another way

| setting | how |
|---|---|
"""


def page() -> str:
    """Return the whole page as Markdown."""
    served = "".join(_row(APIS[key]) for key in sorted(TABLE))
    clients = [api for key, api in sorted(APIS.items()) if key not in TABLE and "broker" in _listeners(api)]
    not_served = NOT_SERVED + ", ".join(api.name for api in clients) + ".\n"
    settings = SETTINGS + _settings(TOPIC_WITHOUT_EFFECT) + IN_ANOTHER_WAY + _settings(TOPIC_IN_ANOTHER_WAY)
    return HEAD + served + not_served + LONG_REQUESTS + _long_requests() + settings


def _long_requests() -> str:
    apis = [(APIS[key].name, TABLE[key]) for key in sorted(TABLE) if not TABLE.is_inter_broker(key)]
    limit = OUR_INTEGERS[REQUEST_ELEMENTS]
    lines = [
        f"| {name} | {_slice_elements(name, api):,} | {elements_max(api, limit):,} |\n"
        for name, api in apis
        if api.slices is not None or name in DIVIDED_BY_THE_HANDLER
    ]
    rest = f"| all others | are not divided | {limit // UNDIVIDED_DIVISOR:,} |\n"
    return "".join(lines) + rest


def _slice_elements(name: str, api: Api[Any, Any]) -> int:
    return DIVIDED_BY_THE_HANDLER[name] if api.slices is None else api.slices.elements


def _settings(settings: Mapping[str, str]) -> str:
    return "".join(f"| {name} | {effect} |\n" for name, effect in sorted(settings.items()))


def _row(api: ApiInfo) -> str:
    served, differences = _versions(TABLE.versions(api.key)), _differences(api)
    in_3_9 = _versions(_stable(api.kafka_3_9, unstable=api.unstable_3_9))
    in_4_3 = _versions(_stable(api.kafka_4_3, unstable=api.unstable_4_3))
    return f"| {api.name} | {int(api.key)} | {served} | {in_3_9} | {in_4_3} | {differences} |\n"


def _differences(api: ApiInfo) -> str:
    """Return the differences in the docstring of the API's module."""
    docstring = sys.modules[TABLE[api.key].handle.__module__].__doc__ or ""
    text = " ".join(docstring.partition("Differences from Kafka: ")[2].split())
    return "" if text == "none." else text[:1].upper() + text[1:]


def _versions(versions: Versions | None) -> str:
    if versions is None:
        return "–"
    low, high = versions
    return str(low) if low == high else f"{low}–{high}"


def _stable(versions: Versions | None, *, unstable: bool) -> Versions | None:
    """Return the versions that a release advertises by default: without its unstable highest version."""
    if versions is None or not unstable:
        return versions
    low, high = versions
    return (low, high - 1) if high > low else None


def _listeners(api: ApiInfo) -> frozenset[str]:
    return api.listeners_3_9 | api.listeners_4_3


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
