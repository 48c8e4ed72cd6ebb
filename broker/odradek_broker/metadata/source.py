"""The metadata source: where a broker gets the metadata of its cluster from, as an ordered sequence of deltas.

One implementation for each kind of cluster: with the embedded controller (`metadata.embedded_source`) and over
ZooKeeper (`zookeeper.metadata_source`). A KRaft quorum's metadata log would be a third.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import Protocol

from odradek_controller.image import ClusterImage, MetadataDelta
from odradek_controller.levels import ApiRanges, Emulation


class MetadataSource(Protocol):
    """The cluster's metadata as this broker receives it."""

    @property
    def image(self) -> ClusterImage:
        """The image after the last delta."""
        ...

    def subscribe(self, listener: Callable[[MetadataDelta], AsyncIterator[None] | None]) -> Callable[[], None]:
        """Call the listener with the whole image as one delta now, and with each later delta; return the unsubscriber.

        The listener must not submit a request itself. It returns None when it has applied the delta, or an iterator
        that applies a large later delta in steps; the source takes all steps before the next delta.
        """
        ...

    @property
    def emulation(self) -> Emulation:
        """The release of Kafka that the cluster emulates."""
        ...

    @property
    def apis(self) -> ApiRanges | None:
        """The versions that ApiVersions advertises to clients, by API key; None for all that are served."""
        ...

    @property
    def refuses_expired_timeouts(self) -> bool:
        """Whether a change with a `timeout_ms` of 0 or less is refused with REQUEST_TIMED_OUT, as by QuorumController.

        Over ZooKeeper, as with ZkAdminManager, the change is made and the response has that error.
        """
        ...

    @property
    def unserved_apis(self) -> Collection[int]:
        """The keys of the APIs that this kind of cluster cannot serve."""
        ...

    @property
    def stores_features(self) -> bool:
        """Whether feature levels can be stored, so that ApiVersions lists supported features."""
        ...

    @property
    def stores_client_metrics(self) -> bool:
        """Whether client metrics subscriptions can be stored."""
        ...
