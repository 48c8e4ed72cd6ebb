"""After the same transactions Kafka's tools read the same in both brokers' logs of transactions and of offsets."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from odradek_peers import KAFKA_4_3, JavaTools

from compat_tests.oracle.coordinated import NEWEST_LEVEL, Coordinated
from compat_tests.oracle.pair import Pair
from compat_tests.oracle.peer import Peer

pytestmark = pytest.mark.peers
PairFor = Callable[[str, int], Pair]
PARTITIONS = 4
STATE, OFFSETS = "__transaction_state", "__consumer_offsets"
_RECORD = re.compile(r"^\| offset: \d+ .*? key: (?P<key>.*?) payload: (?P<payload>.*)$")
_BATCH = re.compile(r"^baseOffset: ")
_PRODUCER = re.compile(r"\bproducerId: (\d+)")
_MARKER = re.compile(r"^\| offset: \d+ .*(?P<marker>endTxnMarker: .*)$")
_OF_BATCHES = re.compile(r"\b(count|baseSequence|lastSequence|producerEpoch|isTransactional|isControl|size|magic): \S+")


def test_kafkas_tools_read_the_same_transaction_and_offset_logs(level: int, pair_for: PairFor) -> None:
    mine = Coordinated(pair_for("EndTxn", 5), f"in-files-{level}")
    new = level == NEWEST_LEVEL
    mine.begin()
    mine.begin()
    for commit in (True, False):
        if new:
            mine.produce(0)
            mine.commit_offsets(3)
        else:
            mine.add(0, 1)
            mine.add_offsets()
            mine.commit_offsets(3, version=4)
        mine.end(commit, version=5 if new else 4)
        mine.add(2, version=0)
        mine.add_offsets(version=0)
        mine.commit_offsets(4, version=3)
        mine.end(commit, version=4)
    if new:
        mine.end(False)
    mine.add(0)
    mine.begin()
    mine.init(5, mine.producer, timeout_ms=300)
    mine.add(0)
    mine.settle(until=lambda state: state == "CompleteAbort")
    mine.look()

    theirs, ours = (_told(peer, mine.id) for peer in (mine.pair.kafka, mine.pair.ours))
    assert len(theirs) > 20
    assert theirs == ours


def _told(peer: Peer, name: str) -> list[Any]:
    """Return the records of a transactional id and of a group of the same name, without timestamps."""
    return [*_states(peer, name), *_offsets(peer, name)]


def _states(peer: Peer, name: str) -> Iterator[Any]:
    for line in _dumped(peer, STATE, "--transaction-log-decoder"):
        found = _RECORD.match(line)
        if found and f'"{name}"' in found["key"]:
            value = json.loads(found["payload"])
            _without_moments(peer, value["data"])
            yield json.loads(found["key"]), value, re.findall(r"(?:key|value)Size: \d+", line)


def _without_moments(peer: Peer, data: dict[str, Any]) -> None:
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
    """Yield the batches of producers that this test knows, and the group's records."""
    producers = set(peer.producers.values())
    known = False
    for line in _dumped(peer, OFFSETS, "--offsets-decoder"):
        if _BATCH.match(line):
            match = _PRODUCER.search(line)
            known = match is not None and int(match[1]) in producers
            if known:
                yield [each.group(0) for each in _OF_BATCHES.finditer(line)]
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
