"""Produce (key 0), versions 0-13: append batches to partitions that this broker leads.

The hot path: plain functions, and nothing waits unless acks=all has to (with one replica it never has to). Old message
formats (versions 0-2) are converted to batches by the log. The usual request takes the fast path (`produce_fast_path`),
batches of transactions go by way of their coordinator (`produce_transactional`); all are appended by `produce_append`.
"""

from __future__ import annotations

from odradek_broker.apis import produce_transactional
from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_broker.apis.produce_append import append, failed
from odradek_broker.apis.produce_fast_path import fast_path
from odradek_broker.apis.produce_transactional import is_transactional
from odradek_broker.apis.slices import Slices
from odradek_broker.deferred import Deferred
from odradek_wire.messages.produce import ProduceRequest, ProduceResponse


def handle(ctx: Context, request: ProduceRequest) -> ProduceResponse | Deferred[ProduceResponse] | None:
    if request.transactional_id is not None or is_transactional(request):
        return produce_transactional.handle(ctx, request)
    return append(ctx, request)


API = Api(
    ProduceRequest,
    ProduceResponse,
    handle,
    failed=failed,
    fast_path=fast_path,
    slices=Slices(
        "topic_data",
        "responses",
        inner=("partition_data", "partition_responses"),
        elements=25,
        also="node_endpoints",
    ),
)
