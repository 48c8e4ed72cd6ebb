"""The cluster-wide `min.insync.replicas`: with eligible leaders (KIP-966) always dynamic; it begins as static."""

from __future__ import annotations

from odradek_wire.messages.config_record import ConfigRecord

from ..configs.table import Resource
from ..image import ClusterImage, ConfigResource
from .context import CommandContext

MIN_ISR = "min.insync.replicas"


def explicit_min_isr(image: ClusterImage, context: CommandContext) -> list[ConfigRecord]:
    """The record that is missing, if it is."""
    key = ConfigResource(int(Resource.BROKER), "")
    if not image.levels.eligible_leaders or MIN_ISR in image.configs.get(key, {}):
        return []
    return [ConfigRecord(key.type, key.name, MIN_ISR, context.layers(image).value(MIN_ISR))]
