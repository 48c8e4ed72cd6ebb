"""Features that announce a protocol to clients are supported and finalized only where the protocol is served, in every
emulation and in a data directory in which Kafka has finalized them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek_broker.apis.table import TABLE
from odradek_controller.image_records import feature_records
from odradek_controller.levels import FEATURE_APIS, Emulation, Levels
from odradek_controller.snapshots import BOOTSTRAP, encode_snapshot
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.api_versions import ApiVersionsRequest
from odradek_wire.messages.update_features import UpdateFeaturesRequest

UNSERVED = {name for name, api in FEATURE_APIS.items() if api not in TABLE.served}
SERVED_43 = {
    "metadata.version": 30,
    "eligible.leader.replicas.version": 1,
    "transaction.version": 2,
    **{name: 1 for name in FEATURE_APIS if name not in UNSERVED},
}


async def listed(client: Any) -> tuple[set[str], dict[str, int]]:
    """Return the names of the supported features, and the finalized ones with their levels."""
    response = await client.ask(ApiVersionsRequest("test", "1"), 4)
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    return {each.name for each in response.supported_features}, levels


@pytest.mark.parametrize(
    ("emulate", "finalized"),
    [("union", SERVED_43), ("4.3", SERVED_43), ("3.9", {"metadata.version": 21})],
)
async def test_a_new_cluster_finalizes_the_features_that_are_served(
    emulate: str, finalized: dict[str, int], start_node: Any, connect: Any
) -> None:
    node = await start_node(odradek_emulate=emulate)
    supported, levels = await listed(await connect(node))
    assert levels == finalized == dict(node.broker.image.levels.finalized)
    assert supported == Emulation(emulate).supported.keys() - UNSERVED


@pytest.mark.parametrize("emulate", ["union", "4.3"])
async def test_levels_of_a_formatted_directory_are_kept_and_listed_where_served(
    emulate: str, tmp_path: Path, start_node: Any, connect: Any
) -> None:
    every = Emulation.KAFKA_4_3.initial
    (tmp_path / "data").mkdir()
    formatted = encode_snapshot(list(feature_records(every)), Levels(), epoch=0, now_ms=0, last_timestamp=0)
    (tmp_path / "data" / BOOTSTRAP).write_bytes(formatted)

    node = await start_node(odradek_emulate=emulate)
    assert (await listed(await connect(node)))[1] == SERVED_43
    assert node.broker.image.levels == every


async def test_a_feature_that_is_not_served_cannot_be_finalized(start_node: Any, connect: Any) -> None:
    client = await connect(await start_node())
    for name in sorted(UNSERVED):
        update = UpdateFeaturesRequest.FeatureUpdateKey(name, 1, False, 1)
        response = await client.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)
        assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
        assert response.error_message.endswith("does not support this feature.")
    assert (await listed(client))[1] == SERVED_43
