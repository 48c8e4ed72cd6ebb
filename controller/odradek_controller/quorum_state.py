"""The file `quorum-state`: the leader of the metadata log, its epoch, and the vote of this node.

Kafka writes data version 0 with static voters (`controller.quorum.voters`) and 1 with voters in the log (KIP-853). An
existing file keeps its version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from odradek_wire.uuid import ZERO_UUID, uuid_to_text

QUORUM_STATE = "quorum-state"


@dataclass(frozen=True, slots=True)
class QuorumStateFile:
    """The content of the file after the election of this node."""

    leader_id: int
    leader_epoch: int
    data_version: int = 0
    voters: tuple[int, ...] = ()
    """The voters in a decoded file of data version 0; with version 1 the log has them. `encode` writes the leader as
    the only voter."""

    def encode(self) -> bytes:
        fields: dict[str, object]
        if self.data_version == 0:
            fields = {
                "clusterId": "",
                "leaderId": self.leader_id,
                "leaderEpoch": self.leader_epoch,
                "votedId": -1,
                "appliedOffset": 0,
                "currentVoters": [{"voterId": self.leader_id}],
            }
        else:
            fields = {
                "leaderId": self.leader_id,
                "leaderEpoch": self.leader_epoch,
                "votedId": -1,
                "votedDirectoryId": uuid_to_text(ZERO_UUID),
            }
        return json.dumps({**fields, "data_version": self.data_version}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> QuorumStateFile:
        """Return the content of the file. Raises ValueError for other data and for unknown data versions."""
        fields = json.loads(data)
        version = int(fields["data_version"])
        if version not in (0, 1):
            raise ValueError(f"data version {version}, expected 0 or 1")
        voters = tuple(int(voter["voterId"]) for voter in fields.get("currentVoters") or ())
        return cls(int(fields["leaderId"]), int(fields["leaderEpoch"]), version, voters)
