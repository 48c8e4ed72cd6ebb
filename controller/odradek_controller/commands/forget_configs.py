"""The removal of all dynamic configurations except those of topics and the initial ones of a cluster.

`Cluster.reset` uses it; Kafka has no such request. It validates nothing: it also removes values that could not be set,
and configurations of unknown brokers.
"""

from __future__ import annotations

from dataclasses import replace

from odradek_wire.message import Message
from odradek_wire.messages.config_record import ConfigRecord

from ..configs.table import Resource
from ..image import ClusterImage, ConfigResource
from .context import CommandContext
from .min_isr import clear_elr_records, explicit_min_isr


def forget_configs(image: ClusterImage, context: CommandContext) -> list[Message]:
    """Return the records of the configurations that change, and those that then clear eligible leaders."""
    topics = {resource: values for resource, values in image.configs.items() if resource.type == Resource.TOPIC}
    first = explicit_min_isr(replace(image, configs=topics), context)
    kept = {(ConfigResource(record.resource_type, record.resource_name), record.name) for record in first}
    removed = [
        ConfigRecord(resource.type, resource.name, name, None)
        for resource, values in image.configs.items()
        if resource not in topics
        for name in values
        if (resource, name) not in kept
    ]
    changed = [
        record
        for record in first
        if image.configs.get(ConfigResource(record.resource_type, record.resource_name), {}).get(record.name)
        != record.value
    ]
    return [*removed, *changed, *clear_elr_records(image, [*removed, *changed])]
