"""Which names a topic may have, and which names cannot live beside each other."""

from __future__ import annotations

import re
from collections.abc import Iterable

from odradek_wire.errors import ErrorCode

from .context import Refusal

MAX_LENGTH = 249
METADATA_TOPIC = "__cluster_metadata"
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> Refusal | None:
    """Kafka's Topic.validate."""
    if not name:
        why = "the empty string is not allowed"
    elif name in (".", ".."):
        why = f"'{name}' is not allowed"
    elif len(name) > MAX_LENGTH:
        why = f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    elif not _LEGAL.fullmatch(name):
        why = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return None
    return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {why}")


def collision_key(name: str) -> str:
    """Names that differ only in '.' and '_' would share their metrics' name."""
    return name.replace(".", "_")


def check_collision(name: str, existing: Iterable[str]) -> Refusal | None:
    """Looks at all topics, but only for a name that can collide at all."""
    if "." not in name and "_" not in name:
        return None
    key = collision_key(name)
    others = [other for other in existing if len(other) == len(name) and collision_key(other) == key and other != name]
    if not others:
        return None
    return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {min(others)}")
