"""The topics that members subscribe to, read from their metadata in the consumer protocol.

Owns the fields of the clients' format that the coordinator needs. Leaves their use (offsets of subscribed topics do not
expire and cannot be deleted) to `classic_group`.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import error as StructError
from struct import unpack_from


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics of all members; None if one subscription is invalid.

    Every version of the format begins with int16 version, [string] topics; KIP-429 and later only append fields.
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
        raise ValueError(f"a subscription of {len(subscription)} bytes cannot have {count} topics")
    position = 6
    topics = []
    for _ in range(count):
        (length,) = unpack_from(">h", subscription, position)
        position += 2
        if length < 0 or position + length > len(subscription):
            raise ValueError(f"a topic name of {length} bytes exceeds the subscription")
        topics.append(subscription[position : position + length].decode())
        position += length
    return topics
