"""Whether a producer's transaction includes a partition of `__consumer_offsets`, before offsets are committed in it
(KIP-890; CoordinatorPartitionWriter.maybeStartTransactionVerification).

Leaves asking the transaction's coordinator to `verification`, and committing to `groups`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek_broker.deferred import Deferred
from odradek_broker.transactions.core.transaction import Producer
from odradek_broker.transactions.verification import VERIFICATION_ENABLE, Claim, Manner
from odradek_log.verification_guard import NOT_REQUIRED, ONGOING, VerificationGuard
from odradek_wire.errors import ErrorCode
from odradek_wire.records.attributes import NO_SEQUENCE

if TYPE_CHECKING:
    from odradek_broker.broker import Broker
    from odradek_broker.replication.partition import Partition
    from odradek_wire.messages.txn_offset_commit import TxnOffsetCommitRequest

Verdict = VerificationGuard | ErrorCode
"""What the partition is to be appended with, or why nothing is."""


def verify(
    broker: Broker, partition: Partition, request: TxnOffsetCommitRequest, api_version: int
) -> Verdict | Deferred[Verdict]:
    """Ask, unless the transaction is open in the partition already. Clients of transaction version 2 have it added."""
    manner = Manner.of_txn_offset_commit(api_version)
    adds = manner is Manner.ADD
    required = broker.config.boolean(VERIFICATION_ENABLE)
    if not adds and not required:
        return NOT_REQUIRED
    producer = Producer(request.producer_id, request.producer_epoch)
    begun = partition.begin_verification(*producer, NO_SEQUENCE, adds=adds)
    if begun is ONGOING or isinstance(begun, ErrorCode):
        return begun
    granted = begun if required else NOT_REQUIRED
    place = (partition.topic, partition.index)
    refusals = broker.verifier.ask(Claim(request.transactional_id, producer, (place,), manner))
    if not isinstance(refusals, Deferred):
        return refusals.get(place, granted)
    return refusals.map(lambda refused: refused.get(place, granted))
