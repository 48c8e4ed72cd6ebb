"""Levels and emulation against ApiVersions of running brokers."""

import json
from pathlib import Path
from typing import Any

import pytest

from odradek_controller.levels import Emulation, Levels, served_features
from odradek_wire.apis import ApiKey

FACTS = Path(__file__).parent / "facts"
RELEASES = {
    Emulation.KAFKA_3_9: "apiversions-3.9.1.jsonl",
    Emulation.KAFKA_4_0: "apiversions-4.0.0.jsonl",
    Emulation.KAFKA_4_3: "apiversions-4.3.0.jsonl",
}


def responses(emulation: Emulation) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FACTS / RELEASES[emulation]).read_text().splitlines()]


@pytest.mark.parametrize("emulation", RELEASES)
def test_an_emulated_release_advertises_exactly_its_apis_and_features(emulation: Emulation) -> None:
    for response in responses(emulation):
        assert emulation.apis == {int(key): tuple(versions) for key, versions in response["apis"].items()}
        ours = [[name, *levels] for name, levels in emulation.advertised_features(response["version"]).items()]
        assert ours == response["supported"]
        assert sorted(emulation.initial.finalized.items()) == sorted(
            (name, low) for name, low, _ in response["finalized"]
        )


def test_the_default_has_all_served_apis_and_the_features_of_4_3() -> None:
    assert Emulation.UNION.apis is None
    assert Emulation.UNION.supported == Emulation.KAFKA_4_3.supported
    assert Emulation.UNION.initial == Emulation.KAFKA_4_3.initial


def test_a_feature_is_served_where_its_first_api_is() -> None:
    every = Emulation.KAFKA_4_3.initial.finalized
    protocol_features = {"group.version", "share.version", "streams.version"}
    assert served_features(every, ()).keys() == every.keys() - protocol_features
    one = served_features(every, {ApiKey.CONSUMER_GROUP_HEARTBEAT})
    assert one == {name: level for name, level in every.items() if name not in protocol_features - {"group.version"}}
    assert list(one) == [name for name in every if name in one]
    older = Emulation.KAFKA_3_9.supported
    assert served_features(older, ()) == older


def test_levels_decide_the_versions_of_records_as_in_kafka() -> None:
    def versions(metadata_version: int) -> tuple[int, int, bool]:
        levels = Levels({"metadata.version": metadata_version})
        return (
            levels.register_broker_record_version,
            levels.partition_record_version,
            levels.metadata_transactions,
        )

    assert [versions(level) for level in (7, 8, 13, 17, 23, 30)] == [
        (1, 0, False),
        (2, 0, False),
        (2, 0, True),
        (3, 1, True),
        (3, 2, True),
        (4, 2, True),
    ]
    assert Emulation.KAFKA_3_9.initial.metadata_version == 21  # 3.9-IV0


def test_zookeeper_mode_has_a_protocol_version_as_metadata_version() -> None:
    levels = Levels({}, inter_broker_protocol=21)
    assert (levels.metadata_version, levels.fetch_version) == (21, 17)
    assert (levels.directory_assignment, levels.elr_enabled, levels.bumps_leader_epoch) == (False, False, True)
    kraft = Emulation.KAFKA_3_9.initial
    assert (kraft.directory_assignment, kraft.bumps_leader_epoch) == (True, False)


def test_transaction_version_is_2_from_kafka_4_0_on() -> None:
    versions = {emulation: emulation.initial.transaction_version for emulation in Emulation}
    assert versions == {
        Emulation.KAFKA_3_9: 0,
        Emulation.KAFKA_4_0: 2,
        Emulation.KAFKA_4_3: 2,
        Emulation.UNION: 2,
    }
    assert Levels({}, inter_broker_protocol=21).transaction_version == 0
    assert Levels({"transaction.version": 2}, inter_broker_protocol=21).transaction_version == 1
