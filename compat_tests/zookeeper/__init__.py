"""Clusters over ZooKeeper: processes of odradek, and brokers of Apache Kafka 3.9 beside them."""
