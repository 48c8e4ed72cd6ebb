"""Kafka's frameworks and transactional clients in Java: exactly-once processing works with the broker under test."""
