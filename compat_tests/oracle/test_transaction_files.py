"""After the same transactions Kafka's tools read the same in both brokers' logs of transactions and of offsets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from odradek_peers import KAFKA_4_3, JavaTools

from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Peer
from compat_tests.oracle.transactional_client import NEWEST_LEVEL, TransactionalClient

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
PARTITIONS = 4
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
_RECORD = re.compile(r"^\| offset: \d+ .*? key: (?P<key>.*?) payload: (?P<payload>.*)$")
_BATCH = re.compile(r"^baseOffset: ")
_PRODUCER = re.compile(r"\bproducerId: (\d+)")
_MARKER = re.compile(r"^\| offset: \d+ .*(?P<marker>endTxnMarker: .*)$")
_BATCH_FIELDS = re.compile(
    r"\b(count|baseSequence|lastSequence|producerEpoch|isTransactional|isControl|size|magic): \S+"
)


def test_kafkas_tools_read_the_same_transaction_and_offset_logs(level: int, pair_for: PairFor) -> None:
    client = TransactionalClient(pair_for("EndTxn", 5), f"in-files-{level}")
    new = level == NEWEST_LEVEL
    client.begin()
    client.begin()
    for commit in (True, False):
        if new:
            client.produce(0)
            client.commit_offsets(3)
        else:
            client.add(0, 1)
            client.add_offsets()
            client.commit_offsets(3, version=4)
        client.end(commit, version=5 if new else 4)
        client.add(2, version=0)
        client.add_offsets(version=0)
        client.commit_offsets(4, version=3)
        client.end(commit, version=4)
    if new:
        client.end(False)
    client.add(0)
    client.begin()
    client.init(5, client.producer, timeout_ms=300)
    client.add(0)
    client.wait_for_state(until=lambda state: state == "CompleteAbort")
    client.compare()

    theirs, ours = (_records_of(peer, client.id) for peer in (client.pair.kafka, client.pair.ours))
    assert len(theirs) > 20
    assert theirs == ours


def _records_of(peer: Peer, name: str) -> list[Any]:
    """Return the records of a transactional id and of a group of the same name, without timestamps."""
    return [*_states(peer, name), *_offsets(peer, name)]


def _states(peer: Peer, name: str) -> Iterator[Any]:
    for line in _dumped(peer, STATE, "--transaction-log-decoder"):
        found = _RECORD.match(line)
        if found and f'"{name}"' in found["key"]:
            value = json.loads(found["payload"])
            _without_timestamps(peer, value["data"])
            yield json.loads(found["key"]), value, re.findall(r"(?:key|value)Size: \d+", line)


def _without_timestamps(peer: Peer, data: dict[str, Any]) -> None:
    names = {value: name for name, value in peer.producers.items()}
    for field, value in data.items():
        if field.lower().endswith("producerid"):
            data[field] = names.get(value, value)
        elif field.endswith("TimestampMs"):
            data[field] = min(value, 0)
        elif field == "transactionPartitions" and value is not None:
            for topic in value:
                topic["partitionIds"].sort()
            value.sort(key=lambda topic: str(topic["topic"]))


def _offsets(peer: Peer, name: str) -> Iterator[Any]:
    """Yield the batches of this test's producers, and the group's records."""
    producers = set(peer.producers.values())
    known = False
    for line in _dumped(peer, OFFSETS, "--offsets-decoder"):
        if _BATCH.match(line):
            match = _PRODUCER.search(line)
            known = match is not None and int(match[1]) in producers
            if known:
                yield [each.group(0) for each in _BATCH_FIELDS.finditer(line)]
        elif known and (marker := _MARKER.match(line)):
            yield marker["marker"]
        elif (found := _RECORD.match(line)) and f'"{name}"' in found["key"]:
            value = json.loads(found["payload"])
            for moment in ("commitTimestamp", "expireTimestamp"):
                if moment in value["data"]:
                    value["data"][moment] = min(value["data"][moment], 0)
            yield json.loads(found["key"]), value


def _dumped(peer: Peer, topic: str, decoder: str) -> list[str]:
    files = []
    (folder,) = {each["log_dir"] for each in peer.ask("DescribeLogDirs", 4, {"topics": None})["results"]}
    for index in range(PARTITIONS):
        files += sorted(Path(folder, f"{topic}-{index}").glob("*.log"))
    return JavaTools(KAFKA_4_3).run("kafka-dump-log", decoder, "--files", ",".join(map(str, files))).splitlines()
