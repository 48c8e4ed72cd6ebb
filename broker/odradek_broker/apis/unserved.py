"""APIs that an emulated release advertises and Odradek does not serve yet: UNSUPPORTED_VERSION in their own messages.

A client that has seen such an API in ApiVersions uses it. It understands UNSUPPORTED_VERSION in every error field of
the response, but would retry forever after a closed connection. Owns the shape of these responses, which is that of
`getErrorResponse` of Kafka's requests: the error of the whole request, and a row for each row of the request where
Kafka has one. When an API becomes served, its module takes the shape over as `error_response`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from odradek_broker.apis.api import Api
from odradek_broker.apis.context import Context
from odradek_wire.apis import APIS, ApiKey
from odradek_wire.codec import definition
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from odradek_wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from odradek_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from odradek_wire.messages.delete_share_group_state import DeleteShareGroupStateRequest, DeleteShareGroupStateResponse
from odradek_wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from odradek_wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from odradek_wire.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
)
from odradek_wire.messages.read_share_group_state import ReadShareGroupStateRequest, ReadShareGroupStateResponse
from odradek_wire.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
)
from odradek_wire.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from odradek_wire.messages.streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from odradek_wire.messages.write_share_group_state import WriteShareGroupStateRequest, WriteShareGroupStateResponse
from odradek_wire.notation import StructType

ResponseT = TypeVar("ResponseT")

CLIENTS_MAX = 1000
"""Clients of one API that are remembered because a warning about them was logged."""


def api(key: ApiKey) -> Api[Any, Any]:
    """Return the API of a key that is not served. It logs one warning for each client, not one for each request."""
    info = APIS[key]
    request_class, response_class = info.request_class(), info.response_class()
    shape = _SHAPES.get(key, lambda request: response_class())
    warned: set[tuple[str | None, str]] = set()

    def refuse(ctx: Context, request: Any, error: ErrorCode, message: str | None = None) -> Message:
        response = shape(request)
        _fill(definition(response_class).root, response, ctx.api_version, error, message)
        return response

    def handle(ctx: Context, request: Any) -> Message:
        client = (ctx.client_id, ctx.address)
        if client not in warned:
            if len(warned) == CLIENTS_MAX:
                warned.clear()
            warned.add(client)
            event = "API of the emulated release is not served; responded UNSUPPORTED_VERSION"
            ctx.connection.warn(event, ctx)
        return refuse(ctx, request, ErrorCode.UNSUPPORTED_VERSION, f"Odradek does not serve {info.name} yet")

    return Api(request_class, response_class, handle, error_response=refuse)


def _fill(struct: StructType, row: Any, version: int, error: ErrorCode, message: str | None) -> None:
    """Set error and message in every field for them that the version has, in this struct and in its arrays."""
    for field in struct.present(version):
        if field.name.endswith("error_code"):
            setattr(row, field.name, error)
        elif field.name == "error_message":
            row.error_message = message
        elif field.struct is not None and field.array:
            for each in getattr(row, field.name) or ():
                _fill(field.struct, each, version, error, message)


# -- shapes: the rows of a response, beside the error of the whole request --------------------------------------------


def _alter_client_quotas(request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    row, part = AlterClientQuotasResponse.EntryData, AlterClientQuotasResponse.EntityData
    return AlterClientQuotasResponse(
        entries=[
            row(entity=[part(each.entity_type, each.entity_name) for each in entry.entity]) for entry in request.entries
        ]
    )


def _describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse:
    row = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult
    # Without user names, as in Kafka.
    return DescribeUserScramCredentialsResponse(results=[row() for _ in request.users or ()])


def _alter_user_scram_credentials(request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse:
    users = {each.name for each in request.deletions} | {each.name for each in request.upsertions}
    row = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    return AlterUserScramCredentialsResponse(results=[row(user) for user in sorted(users)])


def _consumer_group_describe(request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
    row = ConsumerGroupDescribeResponse.DescribedGroup
    return ConsumerGroupDescribeResponse(groups=[row(group_id=each) for each in request.group_ids])


def _share_group_describe(request: ShareGroupDescribeRequest) -> ShareGroupDescribeResponse:
    row = ShareGroupDescribeResponse.DescribedGroup
    return ShareGroupDescribeResponse(groups=[row(group_id=each) for each in request.group_ids])


def _streams_group_describe(request: StreamsGroupDescribeRequest) -> StreamsGroupDescribeResponse:
    row = StreamsGroupDescribeResponse.DescribedGroup
    return StreamsGroupDescribeResponse(groups=[row(group_id=each) for each in request.group_ids])


def _by_topic(request: Any, row: Callable[..., ResponseT], cell: Callable[..., object]) -> list[ResponseT]:
    """Return a row for each topic, with a cell for each partition, as the responses about share groups' state have."""
    return [row(topic.topic_id, [cell(each.partition) for each in topic.partitions]) for topic in request.topics]


def _initialize_share_group_state(request: InitializeShareGroupStateRequest) -> InitializeShareGroupStateResponse:
    row, cell = (
        InitializeShareGroupStateResponse.InitializeStateResult,
        InitializeShareGroupStateResponse.PartitionResult,
    )
    return InitializeShareGroupStateResponse(_by_topic(request, row, cell))


def _read_share_group_state(request: ReadShareGroupStateRequest) -> ReadShareGroupStateResponse:
    row, cell = ReadShareGroupStateResponse.ReadStateResult, ReadShareGroupStateResponse.PartitionResult
    return ReadShareGroupStateResponse(_by_topic(request, row, cell))


def _write_share_group_state(request: WriteShareGroupStateRequest) -> WriteShareGroupStateResponse:
    row, cell = WriteShareGroupStateResponse.WriteStateResult, WriteShareGroupStateResponse.PartitionResult
    return WriteShareGroupStateResponse(_by_topic(request, row, cell))


def _delete_share_group_state(request: DeleteShareGroupStateRequest) -> DeleteShareGroupStateResponse:
    row, cell = DeleteShareGroupStateResponse.DeleteStateResult, DeleteShareGroupStateResponse.PartitionResult
    return DeleteShareGroupStateResponse(_by_topic(request, row, cell))


def _read_share_group_state_summary(request: ReadShareGroupStateSummaryRequest) -> ReadShareGroupStateSummaryResponse:
    row, cell = (
        ReadShareGroupStateSummaryResponse.ReadStateSummaryResult,
        ReadShareGroupStateSummaryResponse.PartitionResult,
    )
    return ReadShareGroupStateSummaryResponse(_by_topic(request, row, cell))


def _describe_share_group_offsets(request: DescribeShareGroupOffsetsRequest) -> DescribeShareGroupOffsetsResponse:
    row = DescribeShareGroupOffsetsResponse.DescribeShareGroupOffsetsResponseGroup
    return DescribeShareGroupOffsetsResponse(groups=[row(each.group_id) for each in request.groups])


_SHAPES: dict[ApiKey, Callable[[Any], Message]] = {
    ApiKey.ALTER_CLIENT_QUOTAS: _alter_client_quotas,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _alter_user_scram_credentials,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.SHARE_GROUP_DESCRIBE: _share_group_describe,
    ApiKey.STREAMS_GROUP_DESCRIBE: _streams_group_describe,
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _initialize_share_group_state,
    ApiKey.READ_SHARE_GROUP_STATE: _read_share_group_state,
    ApiKey.WRITE_SHARE_GROUP_STATE: _write_share_group_state,
    ApiKey.DELETE_SHARE_GROUP_STATE: _delete_share_group_state,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _read_share_group_state_summary,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _describe_share_group_offsets,
}
