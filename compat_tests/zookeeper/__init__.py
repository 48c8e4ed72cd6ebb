"""Clusters over ZooKeeper: Odradek processes and brokers of Apache Kafka 3.9."""
