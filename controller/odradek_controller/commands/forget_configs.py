"""A cluster as new: no dynamic configuration of brokers, groups and client metrics but what every cluster begins with.

No request of Kafka's asks for it; a test's reset does. Overrides of topics go with their topics. What is stored is not
judged again: a value that may not be set, or belongs to a broker that never registered here, goes as well.
"""

from __future__ import annotations

from dataclasses import replace

from odradek_wire.message import Message
from odradek_wire.messages.config_record import ConfigRecord

from ..configs.table import Resource
from ..image import ClusterImage, ConfigResource
from .context import CommandContext
from .min_isr import explicit_min_isr


def forget_configs(image: ClusterImage, context: CommandContext) -> list[Message]:
    """Only what differs is recorded."""
    topics = {key: values for key, values in image.configs.items() if key.type == Resource.TOPIC}
    first = explicit_min_isr(replace(image, configs=topics), context)
    kept = {(ConfigResource(record.resource_type, record.resource_name), record.name) for record in first}
    removed = [
        ConfigRecord(key.type, key.name, name, None)
        for key, values in image.configs.items()
        if key not in topics
        for name in values
        if (key, name) not in kept
    ]
    changed = [
        record
        for record in first
        if image.configs.get(ConfigResource(record.resource_type, record.resource_name), {}).get(record.name)
        != record.value
    ]
    return [*removed, *changed]
