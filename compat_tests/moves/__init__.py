"""A data directory moves from Apache Kafka to Odradek and back: combined mode of 4.3, ZooKeeper mode of 3.9."""
