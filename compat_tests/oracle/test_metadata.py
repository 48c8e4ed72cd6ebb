"""Metadata, DescribeTopicPartitions, DescribeCluster, FindCoordinator."""

from collections.abc import Callable

import pytest

from compat_tests.oracle.cases import versions_of
from compat_tests.oracle.pair import Pair, until_coordinated
from compat_tests.oracle.schema import Body

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
UNKNOWN_ID = bytes(range(16))


def _only(*names: str) -> Callable[[Body], Body]:
    """Select the topics that this test has created."""
    return lambda response: {**response, "topics": [each for each in response["topics"] if each["name"] in names]}


def _cluster(pair: Pair) -> None:
    pair.learn("DescribeCluster", 0, {}, cluster=lambda response: response["cluster_id"])


@versions_of("Metadata")
def test_metadata_of_known_unknown_and_misnamed_topics(version: int, pair_for: PairFor) -> None:
    pair = pair_for("Metadata", version)
    _cluster(pair)
    pair.create_topic("metadata-a", 3)
    pair.create_topic("metadata-b")

    def ask(*names: str) -> None:
        topics = [{"name": name} for name in names]
        pair.ask("Metadata", version, {"topics": topics, "allow_auto_topic_creation": False})

    ask("metadata-a")
    ask("metadata-a", "metadata-b")
    ask("metadata-b", "metadata-b")
    if version >= 4:
        ask("metadata-a", "no-such-topic")
        ask("not a name", "..", "x" * 250)
        ask("")


@versions_of("Metadata")
def test_metadata_of_all_and_of_no_topics(version: int, pair_for: PairFor) -> None:
    pair = pair_for("Metadata", version)
    _cluster(pair)
    pair.create_topic("metadata-a", 3)

    pair.ask("Metadata", version, {"topics": None if version else []}, _only("metadata-a"))
    if version:
        pair.ask("Metadata", version, {"topics": []})


@versions_of("Metadata", 8)
def test_metadata_with_authorized_operations(version: int, pair_for: PairFor) -> None:
    pair = pair_for("Metadata", version)
    _cluster(pair)
    pair.create_topic("metadata-a", 3)
    asked = {"topics": [{"name": "metadata-a"}], "include_topic_authorized_operations": True}
    if version <= 10:
        asked["include_cluster_authorized_operations"] = True

    pair.ask("Metadata", version, asked)


@versions_of("Metadata", 10)
def test_metadata_by_topic_id(version: int, pair_for: PairFor) -> None:
    pair = pair_for("Metadata", version)
    _cluster(pair)
    topic_id = pair.create_topic("metadata-a", 3)

    for name in (None, "metadata-a"):
        pair.ask("Metadata", version, {"topics": [{"topic_id": topic_id, "name": name}]})
    pair.ask("Metadata", version, {"topics": [{"topic_id": UNKNOWN_ID, "name": None}]})
    pair.ask("Metadata", version, {"topics": [{"topic_id": topic_id, "name": None}, {"name": "metadata-a"}]})


@versions_of("Metadata")
def test_metadata_creates_a_topic_if_allowed(version: int, pair_for: PairFor) -> None:
    pair = pair_for("Metadata", version)
    _cluster(pair)
    name = f"auto-{version}"

    # Not compared: Kafka's first response has an error while it creates the topic, ours has the new topic.
    pair.learn("Metadata", version, {"topics": [{"name": name}], "allow_auto_topic_creation": True})

    pair.create_topic(name)
    pair.ask("Metadata", version, {"topics": [{"name": name}]})


@versions_of("DescribeTopicPartitions")
def test_describe_topic_partitions_with_limit_and_cursor(version: int, pair_for: PairFor) -> None:
    pair = pair_for("DescribeTopicPartitions", version)
    pair.create_topic("described-a", 3)
    pair.create_topic("described-b", 2)

    def ask(names: list[str], **more: object) -> None:
        pair.ask("DescribeTopicPartitions", version, {"topics": [{"name": name} for name in names], **more})

    ask(["described-a", "described-b"])
    ask(["described-b", "no-such-topic", "described-a"])
    ask(["described-a", "described-b"], response_partition_limit=2)
    ask(["described-a", "described-b"], response_partition_limit=4)
    ask(["described-a", "described-b"], cursor={"topic_name": "described-a", "partition_index": 2})
    ask(["described-a", "described-b"], cursor={"topic_name": "described-b", "partition_index": 1})
    ask(["described-a"], cursor={"topic_name": "described-a", "partition_index": -1})
    pair.ask("DescribeTopicPartitions", version, {"topics": []}, _only("described-a", "described-b"))


@versions_of("DescribeCluster")
def test_describe_cluster(version: int, pair_for: PairFor) -> None:
    pair = pair_for("DescribeCluster", version)
    _cluster(pair)

    pair.ask("DescribeCluster", version, {})
    pair.ask("DescribeCluster", version, {"include_cluster_authorized_operations": True})
    if version:
        pair.ask("DescribeCluster", version, {"endpoint_type": 2})
        pair.ask("DescribeCluster", version, {"endpoint_type": 7})


@versions_of("FindCoordinator")
def test_find_coordinator(version: int, pair_for: PairFor) -> None:
    pair = pair_for("FindCoordinator", version)

    def ask(key: str, key_type: int = 0) -> None:
        asked: Body = {"coordinator_keys": [key]} if version >= 4 else {"key": key}
        pair.ask("FindCoordinator", version, {**asked, "key_type": key_type})

    until_coordinated(pair)
    ask("a-group")
    ask("")
    if version >= 1:
        ask("a-group", 9)
    if version >= 4:
        pair.ask("FindCoordinator", version, {"coordinator_keys": ["a", "b"], "key_type": 0})
        pair.ask("FindCoordinator", version, {"coordinator_keys": [], "key_type": 0})
