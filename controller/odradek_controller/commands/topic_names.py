"""The rules for topic names: valid characters and length, and collisions between names of metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable

from odradek_wire.errors import ErrorCode

from .context import Refusal

MAX_LENGTH = 249
METADATA_TOPIC = "__cluster_metadata"
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def invalid_topic_name(name: str) -> str | None:
    """Return why no topic may have this name (Kafka's Topic.validate), or None."""
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
    return f"Topic name is invalid: {why}"


def check_topic_name(name: str) -> Refusal | None:
    """Return INVALID_TOPIC_EXCEPTION for a name that no topic may have, or None."""
    why = invalid_topic_name(name)
    return None if why is None else Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, why)


def collision_key(name: str) -> str:
    """Return the same key for names that differ only in '.' and '_': their metrics would have the same name."""
    return name.replace(".", "_")


def check_collision(name: str, existing: Iterable[str]) -> Refusal | None:
    """Return the refusal of a name that collides with an existing topic, or None."""
    if "." not in name and "_" not in name:
        return None
    key = collision_key(name)
    others = [other for other in existing if len(other) == len(name) and collision_key(other) == key and other != name]
    if not others:
        return None
    return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {min(others)}")
