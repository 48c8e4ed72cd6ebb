"""Replicating clusters of Odradek and of Kafka: Kafka's tools with both, and comparisons of their responses."""
