"""The filters of DescribeClientQuotas that Kafka's ClientQuotasImage refuses."""

from __future__ import annotations

from typing import Any

import pytest

from odradek_wire.errors import ErrorCode
from odradek_wire.messages.describe_client_quotas import DescribeClientQuotasRequest

Component = DescribeClientQuotasRequest.ComponentData
EXACT, DEFAULT, SPECIFIED, UNKNOWN = 0, 1, 2, 3
INVALID = ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("components", "error", "message"),
    [
        ([Component("", EXACT, "a")], INVALID, "Invalid empty entity type."),
        (
            [Component("user", EXACT, "a"), Component("user", DEFAULT, None)],
            INVALID,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([Component("planet", EXACT, "a")], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type planet"),
        (
            [Component("user", EXACT, None)],
            INVALID,
            "Request specified MATCH_TYPE_EXACT, but set match string to null.",
        ),
        (
            [Component("user", DEFAULT, "a")],
            INVALID,
            "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.",
        ),
        (
            [Component("user", SPECIFIED, "a")],
            INVALID,
            "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.",
        ),
        ([Component("user", UNKNOWN, None)], INVALID, "Unknown match type 3"),
        (
            [Component("ip", SPECIFIED, None), Component("user", SPECIFIED, None)],
            INVALID,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component.",
        ),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
async def test_an_invalid_filter_is_refused(
    client: Any, components: list[Any], error: ErrorCode, message: str, version: int
) -> None:
    response = await client.ask(DescribeClientQuotasRequest(components, False), version)
    assert (response.error_code, response.error_message, response.entries) == (error, message, None)


async def test_components_of_users_and_clients_may_be_combined(client: Any) -> None:
    components = [Component("user", SPECIFIED, None), Component("client-id", DEFAULT, None)]
    response = await client.ask(DescribeClientQuotasRequest(components, True), 1)
    assert (response.error_code, response.entries) == (ErrorCode.NONE, [])
