"""The cluster-wide `min.insync.replicas`, which is a dynamic configuration in clusters with KIP-966."""

from __future__ import annotations

from odradek_wire.messages.config_record import ConfigRecord

from ..configs.table import Resource
from ..image import ClusterImage, ConfigResource
from .context import CommandContext

MIN_ISR = "min.insync.replicas"


def explicit_min_isr(image: ClusterImage, context: CommandContext) -> list[ConfigRecord]:
    """Return the record that copies the static value, if KIP-966 is enabled and the dynamic value is missing."""
    key = ConfigResource(int(Resource.BROKER), "")
    if not image.levels.eligible_leaders or MIN_ISR in image.configs.get(key, {}):
        return []
    return [ConfigRecord(key.type, key.name, MIN_ISR, context.layers(image).value(MIN_ISR))]
