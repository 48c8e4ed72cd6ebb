"""The controller's port to the storage of the cluster's metadata.

`MetadataLogStore` writes records to a log in the data directory, `ZooKeeperStore` to znodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from odradek_wire.message import Message
from odradek_wire.uuid import Uuid

from .image import ClusterImage
from .levels import Levels


class Appended(NamedTuple):
    """The offset of the last appended record and the epoch of the controller that wrote it."""

    offset: int
    epoch: int


class Voter(NamedTuple):
    """A controller that votes for the leader of the metadata log."""

    id: int
    directory_id: Uuid


class QuorumState(NamedTuple):
    """The state of the quorum as DescribeQuorum returns it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_end_offset: int
    voters: tuple[Voter, ...]
    now_ms: int


class NotControllerError(Exception):
    """Another controller has been elected: nothing was stored, and this controller cannot write any more."""


class UnsupportedRecordError(Exception):
    """The store cannot store a record of this type: nothing was stored. The client gets UNSUPPORTED_VERSION."""


class MetadataStore(Protocol):
    """The storage of one controller, which makes one append at a time."""

    async def open(self) -> ClusterImage:
        """Become the only writer, and return the image of the stored records."""
        ...

    async def append(self, records: Sequence[Message], levels: Levels) -> Appended:
        """Store all records or none.

        Raises NotControllerError, UnsupportedRecordError, or OSError when the disk fails.
        """
        ...

    @property
    def next_offset(self) -> int:
        """The offset of the next record. (A broker's epoch is the offset of its registration.)"""
        ...

    def quorum(self) -> QuorumState:
        """Return the present state of the quorum."""
        ...

    def applied(self, image: ClusterImage) -> None:
        """Take note of the image after an append. A store may write a snapshot of it."""
        ...

    async def close(self) -> None:
        """Release the storage. The store cannot be used afterwards."""
        ...
