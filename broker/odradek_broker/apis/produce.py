"""Produce (key 0): append batches to partitions that this broker leads.

Versions: v3 has batches and transactional ids (KIP-98), v5 the log start offset, v7 allows zstd (KIP-110), v8 has
errors of single records (KIP-467), v9 is flexible, v10 names the new leader (KIP-951), v12 adds partitions to
transactions (KIP-890), v13 has topic ids (KIP-516).
Behaviour: with acks=all the response waits for the in-sync replicas. With acks=1 it does not wait, except for the disk
if `odradek.sync=always`. The log converts the message formats of versions 0-2. The usual request takes the fast path
(`produce_fast_path`); transactional batches are verified first (`produce_transactional`); `produce_append` has the
append of all three paths, and `produce_in_slices` divides large requests.
Differences from Kafka: a request with more than 1,000 elements is dropped if its client disconnects before the broker
has decoded it.
"""

from __future__ import annotations

from odradek_broker.apis import produce_transactional
from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.produce_append import error_response
from odradek_broker.apis.produce_fast_path import fast_path
from odradek_broker.apis.produce_in_slices import append_in_slices
from odradek_broker.apis.produce_transactional import is_transactional
from odradek_broker.deferred import Deferred
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse


def handle(ctx: Context, request: ProduceRequest) -> ProduceResponse | Deferred[ProduceResponse] | None:
    if request.transactional_id is not None or is_transactional(request):
        return produce_transactional.handle(ctx, request)
    return append_in_slices(ctx, request)


API = Api(
    ProduceRequest,
    ProduceResponse,
    handle,
    error_response=error_response,
    fast_path=fast_path,
    elements_divisor=1,
)
