"""Where the cluster's metadata lives: what every home of it offers to the controller.

The embedded store is a log of records in the data directory; a ZooKeeper store keeps the same records as znodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from odradek_wire.message import Message
from odradek_wire.uuid import Uuid

from .image import ClusterImage
from .levels import Levels


class Appended(NamedTuple):
    """Where records stand now: the offset of the last and the epoch of the controller that wrote them."""

    offset: int
    epoch: int


class Voter(NamedTuple):
    """A controller that votes for the leader of the metadata log."""

    id: int
    directory_id: Uuid


class QuorumState(NamedTuple):
    """What DescribeQuorum tells of the store."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    voters: tuple[Voter, ...]
    now_ms: int


class NotControllerError(Exception):
    """Another controller has taken over: nothing was stored, and nothing more will be."""


class RefusedRecordError(Exception):
    """This store has no place for such a record: nothing was stored, and whoever asked for it gets
    UNSUPPORTED_VERSION."""


class MetadataStore(Protocol):
    """Not safe for concurrent use: the controller has one append under way at a time."""

    async def open(self) -> ClusterImage:
        """Become the one writer; the image of all that is stored."""
        ...

    async def append(self, records: Sequence[Message], levels: Levels) -> Appended:
        """Store all or none. Raises NotControllerError, or OSError when the disk fails."""
        ...

    @property
    def next_offset(self) -> int:
        """The offset that the next record will get: a broker's epoch is the offset of its registration."""
        ...

    def quorum(self) -> QuorumState: ...

    def applied(self, image: ClusterImage) -> None:
        """The controller has replayed what it appended: a moment to write a snapshot of the image."""
        ...

    async def close(self) -> None: ...
