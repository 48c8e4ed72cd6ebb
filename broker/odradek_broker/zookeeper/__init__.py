"""ZooKeeper mode: a broker whose controller may be another process, Odradek's or Kafka's."""
