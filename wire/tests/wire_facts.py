"""Facts about every message of Kafka's releases, as plain data, and the definition of each."""

import json
import re
from pathlib import Path
from typing import Any

import release_differences as releases

from odradek_wire.notation import NEVER, TYPES, MessageType, definitions, load

Json = dict[str, Any]

KINDS = {"metadata": "record"}
FACTS: dict[str, dict[str, Json]] = {
    release: json.loads((Path(__file__).parent / "facts" / f"kafka-{release}.json").read_text())
    for release in ("3.9.1", "4.3.0")
}
OURS: dict[str, MessageType] = {message.name: message for name in definitions() for message in load(name)}


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def versions(text: str | None) -> tuple[int, int]:
    if text is None or text == "none":
        return (NEVER, -1)
    if text.endswith("+"):
        return int(text[:-1]), NEVER
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def within(version: int, text: str | None) -> bool:
    first, last = versions(text)
    return first <= version <= last


def default_of(field: Json) -> object:
    """Return the default value of a field in Kafka's classes."""
    # A default that is JSON's null, rather than the string "null", is one that is not stated.
    kind, stated = field["type"], field.get("default") or ""
    if stated == "null" or kind == "records":
        return None
    if kind.startswith("[]"):
        return []
    if kind not in TYPES:
        return ...
    if kind == "bool":
        return str(stated).lower() == "true"
    if kind == "string":
        return stated
    if kind == "bytes":
        return b""
    if kind == "uuid":
        return bytes(16)
    if kind == "float64":
        return float(stated or 0)
    return int(str(stated) or "0", 0)


def definition_for(release: str, name: str, version: int) -> tuple[MessageType, int]:
    """Return our definition, and its version, of the message `name` of a release in `version`."""
    if release == "3.9.1":
        if (name, version) in releases.KEY_TYPES:
            message = OURS[releases.KEY_TYPES[name, version]]
            if FACTS[release][name]["kind"] == "data":
                assert message.key == version or name == "TransactionLogKey"
            return message, 0
        if (name, version) in releases.OTHER_LAYOUT:
            return OURS[releases.OTHER_LAYOUT[name, version]], version
    return OURS[releases.RENAMED_MESSAGES.get(name, name)], version


CASES = [
    (release, name)
    for release, messages in FACTS.items()
    for name, facts in messages.items()
    if facts["versions"] != "none"
]
