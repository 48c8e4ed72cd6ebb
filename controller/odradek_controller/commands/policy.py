"""The settings of a topic's leader elections."""

from __future__ import annotations

from typing import NamedTuple

from ..configs.effective import BrokerLayers
from ..configs.table import Resource, definitions
from ..image import ClusterImage


class ElectionPolicy(NamedTuple):
    """`unclean.leader.election.enable` and `min.insync.replicas` of a topic."""

    unclean: bool
    min_isr: int


def election_policy(image: ClusterImage, topic: str, layers: BrokerLayers) -> ElectionPolicy:
    """Return the effective settings of the topic; `layers` is the configuration of the controller's broker."""
    known = definitions(Resource.TOPIC, layers.release)
    overrides = image.topic_configs(topic)
    unclean = layers.topic(known["unclean.leader.election.enable"], overrides).value
    min_isr = layers.topic(known["min.insync.replicas"], overrides).value
    return ElectionPolicy((unclean or "").strip().lower() == "true", int(min_isr or 1))
