"""The file `quorum-state`: which epoch the metadata log's leader has, and for whom this node voted.

Data version 0 is written with static voters (`controller.quorum.voters`), 1 with voters kept in the log (KIP-853). The
version that is found stays.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from odradek_wire.uuid import ZERO_UUID, uuid_to_text

QUORUM_STATE = "quorum-state"


@dataclass(frozen=True, slots=True)
class QuorumStateFile:
    """This node as the elected leader of an epoch."""

    leader_id: int
    leader_epoch: int
    data_version: int = 0
    voters: tuple[int, ...] = ()
    """Of data version 0; who may vote otherwise stands in the log."""

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
        """Raises ValueError for what is no such file or newer than ours."""
        fields = json.loads(data)
        version = int(fields["data_version"])
        if version not in (0, 1):
            raise ValueError(f"quorum-state has data version {version}; 0 and 1 are known")
        voters = tuple(int(voter["voterId"]) for voter in fields.get("currentVoters") or ())
        return cls(int(fields["leaderId"]), int(fields["leaderEpoch"]), version, voters)
