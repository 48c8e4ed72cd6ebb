"""Reading a whole partition at an isolation level."""

from confluent_kafka import Consumer, KafkaError, TopicPartition

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"


def values(servers: str, topic: str, isolation: str, partition: int = 0) -> list[bytes]:
    """Return all values in the partition at the time of the call."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "neither a record nor the end of the partition"
            error = message.error()
            if error is None:
                found.append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
    finally:
        consumer.close()
