"""Which topics a group's members subscribe to, read from the metadata of the consumer protocol.

Owns the little of that client-side format that a coordinator may look into. Leaves what follows from it (offsets of
subscribed topics do not expire and cannot be deleted) to `offset_requests`.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import error as StructError
from struct import unpack_from


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The union over all members; None if one cannot be read.

    Every version of the format begins with int16 version, [string] topics (KIP-429 and later only append).
    """
    topics: set[str] = set()
    try:
        for subscription in subscriptions:
            topics.update(_topics(subscription))
    except (StructError, UnicodeDecodeError, ValueError):
        return None
    return frozenset(topics)


def _topics(subscription: bytes) -> list[str]:
    _, count = unpack_from(">hi", subscription, 0)
    if not 0 <= count <= len(subscription):
        raise ValueError("absurd number of topics")
    position = 6
    topics = []
    for _ in range(count):
        (length,) = unpack_from(">h", subscription, position)
        position += 2
        if length < 0 or position + length > len(subscription):
            raise ValueError("topic name does not fit")
        topics.append(subscription[position : position + length].decode())
        position += length
    return topics
