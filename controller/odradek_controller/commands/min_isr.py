"""The changes that `min.insync.replicas` needs in clusters with KIP-966.

The cluster-wide value is a dynamic configuration. A change of the value clears eligible leaders.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek_wire.message import Message
from odradek_wire.messages.clear_elr_record import ClearElrRecord
from odradek_wire.messages.config_record import ConfigRecord

from ..configs.table import Resource
from ..image import ClusterImage, ConfigResource
from .context import CommandContext

MIN_ISR = "min.insync.replicas"


def explicit_min_isr(image: ClusterImage, context: CommandContext) -> list[ConfigRecord]:
    """Return the record that copies the static value, if KIP-966 is enabled and the dynamic value is missing."""
    resource = ConfigResource(int(Resource.BROKER), "")
    if not image.levels.elr_enabled or MIN_ISR in image.configs.get(resource, {}):
        return []
    return [ConfigRecord(resource.type, resource.name, MIN_ISR, context.layers(image).value(MIN_ISR))]


def clear_elr_records(image: ClusterImage, records: Iterable[Message]) -> list[ClearElrRecord]:
    """Return the records to append after these, which clear eligible leaders where `min.insync.replicas` changes.

    An eligible leader has all records that the old value let the ISR commit. After the value is lowered, an ISR without
    the eligible leader can commit records, which a clean election of the eligible leader would then lose. Like Kafka,
    the controller also clears them when the value is raised, and those of all topics when a value of brokers changes.
    """
    if not image.levels.elr_enabled:
        return []
    changes = [record for record in records if isinstance(record, ConfigRecord) and record.name == MIN_ISR]
    names = [change.resource_name if change.resource_type == Resource.TOPIC else "" for change in changes]
    return [ClearElrRecord(name) for name in dict.fromkeys(names)]
