"""Bodies of Produce and Fetch requests for one topic, in any version."""

from compat_tests.oracle.schema import Body


def produce_body(version: int, topic: str, topic_id: object, *parts: tuple[int, object], acks: int = -1) -> Body:
    """Return a Produce request for one topic, by id or by name as the version requires."""
    named: Body = {"topic_id": topic_id} if version >= 13 else {"name": topic}
    partitions = [{"index": index, "records": records} for index, records in parts]
    return {"acks": acks, "timeout_ms": 10_000, "topic_data": [{**named, "partition_data": partitions}]}


def fetch_body(version: int, topic: str, topic_id: object, *parts: Body, **more: object) -> Body:
    """Return a Fetch request for one topic; a part has the fields of a partition."""
    named: Body = {"topic_id": topic_id} if version >= 13 else {"topic": topic}
    partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20, **part} for part in parts]
    body: Body = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 24, **more}
    return {**body, "topics": [{**named, "partitions": partitions}]}
