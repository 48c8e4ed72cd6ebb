"""The Kafka operations of a Spark job and its test in short form: send, read, stream into Parquet, read the result."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka import Message as KafkaMessage
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

_SECONDS = 60.0
POSITION_AND_VALUE = ("partition", "offset", "CAST(value AS STRING) AS value")


@dataclass(frozen=True)
class Sent:
    """A record to send, with the fields that a test may set."""

    value: str | None
    key: str | None = None
    partition: int = 0
    timestamp_ms: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()


def numbered(first: int, end: int, *, partitions: int = 1) -> list[Sent]:
    """Return the records v<first> ... v<end - 1> for the partitions in turn; each partition's records are in order."""
    return [Sent(f"v{number}", partition=number % partitions) for number in range(first, end)]


class Job:
    """One test's Spark job: a broker, a Spark session, a directory for checkpoints and results."""

    def __init__(self, spark: SparkSession, directory: Path, servers: str) -> None:
        self.spark = spark
        self.servers = servers
        self.output = str(directory / "output")
        self.checkpoint = str(directory / "checkpoint")

    # --- Kafka, with confluent-kafka

    def send(self, topic: str, records: Iterable[Sent]) -> None:
        """Send records and wait until all are acknowledged."""
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "linger.ms": 5})
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: KafkaMessage) -> None:
            if error is not None:
                failures.append(error)

        for count, record in enumerate(records):
            if count % 50_000 == 49_999:  # librdkafka's own queue holds twice as many
                assert producer.flush(_SECONDS) == 0, "records are unacknowledged after the timeout"
            producer.produce(
                topic,
                record.value,
                record.key,
                record.partition,
                on_delivery=delivered,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
            )
            producer.poll(0)
        assert producer.flush(_SECONDS) == 0, "records are unacknowledged after the timeout"
        assert failures == []

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and wait until Metadata no longer lists it."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.delete_topics([topic])[topic].result(_SECONDS)
        while topic in admin.list_topics(timeout=_SECONDS).topics:
            pass

    def set_topic_config(self, topic: str, name: str, value: str) -> None:
        """Set one configuration of a topic."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.incremental_alter_configs([resource])[resource].result(_SECONDS)

    def offsets(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Return the earliest and the latest offset of a partition."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "unused"})
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), _SECONDS)
            return low, high
        except KafkaException as failure:
            raise AssertionError(f"no offsets of {topic}-{partition}: {failure}") from failure
        finally:
            consumer.close()

    # --- Spark

    def read(self, **options: object) -> DataFrame:
        """Return a batch query's frame; dictionaries among the options become JSON."""
        return self.spark.read.format("kafka").options(**self._options(options)).load()

    def stream(self, **options: object) -> DataFrame:
        """Return a streaming frame, by default from the earliest offset."""
        chosen = self._options({"startingOffsets": "earliest", **options})
        return self.spark.readStream.format("kafka").options(**chosen).load()

    def into_parquet(self, **options: object) -> StreamingQuery:
        """Start a query that writes topic, partition, offset and value to Parquet, with this test's checkpoint."""
        return self._sink(**options).trigger(processingTime="100 milliseconds").start()

    def available_into_parquet(self, **options: object) -> StreamingQuery:
        """As `into_parquet`, but only the available records: wait for the query's end. Raises the query's error."""
        query = self._sink(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        return query

    def _sink(self, **options: object) -> DataStreamWriter:
        frame = self.stream(**options).selectExpr("topic", *POSITION_AND_VALUE)
        sink = frame.writeStream.format("parquet").option("path", self.output)
        return sink.option("checkpointLocation", self.checkpoint)

    def written(self) -> DataFrame:
        """Read the Parquet sink through its log of committed files."""
        return self.spark.read.parquet(self.output)

    def _options(self, options: dict[str, object]) -> dict[str, str]:
        texts = {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in options.items()}
        return {"kafka.bootstrap.servers": self.servers, **texts}


def rows(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Return the frame's rows (of those columns or expressions), sorted, as tuples."""
    chosen = frame.selectExpr(*columns) if columns else frame
    return sorted(tuple(row) for row in chosen.collect())
