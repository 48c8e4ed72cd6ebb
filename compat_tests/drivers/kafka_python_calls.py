"""One call of kafka-python 3.x or (by PYTHONPATH) 2.0.2 in its own process: one command in, one response out.

JSON on stdin and stdout; bytes are base64. Both releases of the library take the same calls.
"""

import base64
import json
import sys
import time
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

_MAX_BYTES = 16 * 1024 * 1024
_SECONDS = 30.0


def produce(command: dict[str, Any], common: dict[str, Any]) -> object:
    """Send every message of the command. Return their offsets (-1 without acknowledgement)."""
    acks = command["acks"]
    producer = KafkaProducer(
        acks=acks if acks == "all" else int(acks),
        compression_type=None if command["codec"] == "none" else command["codec"],
        max_request_size=_MAX_BYTES,
        linger_ms=20,
        **common,
    )
    futures = [
        producer.send(
            command["topic"],
            value=_bytes(message["value"]),
            key=_bytes(message["key"]),
            headers=[(name, _bytes(value)) for name, value in message["headers"]] or None,
            partition=message["partition"],
            timestamp_ms=message["timestamp_ms"],
        )
        for message in command["messages"]
    ]
    producer.flush(timeout=_SECONDS)
    offsets = [future.get(timeout=_SECONDS).offset for future in futures]
    producer.close(timeout=_SECONDS)
    return offsets


def consume(command: dict[str, Any], common: dict[str, Any]) -> object:
    """Read one partition from an offset."""
    consumer = KafkaConsumer(**_fetching(command), group_id=None, **common)
    partition = TopicPartition(command["topic"], command["partition"])
    consumer.assign([partition])
    consumer.seek(partition, command["offset"])
    try:
        return _read(consumer, command["count"])
    finally:
        consumer.close()


def consume_as_group(command: dict[str, Any], common: dict[str, Any]) -> object:
    """Read as the only member of a group, commit, leave."""
    consumer = KafkaConsumer(
        command["topic"], **_fetching(command), group_id=command["group"], enable_auto_commit=False, **common
    )
    try:
        records = _read(consumer, command["count"])
        last = {record["partition"]: record["offset"] for record in records}
        fields = len(OffsetAndMetadata._fields)
        consumer.commit(
            {
                # 3.x added the leader epoch.
                TopicPartition(command["topic"], partition): OffsetAndMetadata(*(offset + 1, "", -1)[:fields])
                for partition, offset in last.items()
            }
        )
        return records
    finally:
        consumer.close()


def offsets_for_times(command: dict[str, Any], common: dict[str, Any]) -> object:
    """Return the first offset at or after each timestamp, null if there is none."""
    consumer = KafkaConsumer(group_id=None, **common)
    partition = TopicPartition(command["topic"], command["partition"])
    found = [consumer.offsets_for_times({partition: each})[partition] for each in command["timestamps"]]
    consumer.close()
    return [None if each is None else each.offset for each in found]


def _fetching(command: dict[str, Any]) -> dict[str, Any]:
    return {
        "auto_offset_reset": "earliest",
        "fetch_max_bytes": 4 * _MAX_BYTES,
        "max_partition_fetch_bytes": _MAX_BYTES,
        "max_poll_records": command["count"],
    }


def _read(consumer: KafkaConsumer, count: int) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = []
    deadline = time.monotonic() + _SECONDS
    while len(records) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"only {len(records)} of {count} records came")
        for batch in consumer.poll(timeout_ms=500).values():
            records += [
                {
                    "partition": each.partition,
                    "offset": each.offset,
                    "timestamp_ms": each.timestamp,
                    "key": _text(each.key),
                    "value": _text(each.value),
                    "headers": [(name, _text(value)) for name, value in each.headers],
                }
                for each in batch
            ]
    return records[:count]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    shared = {"bootstrap_servers": asked["servers"]}
    if asked.get("api_version"):
        shared["api_version"] = tuple(asked["api_version"])
    call = {each.__name__: each for each in (produce, consume, consume_as_group, offsets_for_times)}[asked["call"]]
    json.dump(call(asked, shared), sys.stdout)
