"""Unmodified clients against a running broker: Odradek, or Apache Kafka to check the tests themselves."""
