"""Unmodified clients against a running broker: Odradek, or Apache Kafka itself to see that a test is right."""
