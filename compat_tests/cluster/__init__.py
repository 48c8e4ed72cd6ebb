"""Several brokers that replicate: Kafka's tools and its own answers against Odradek's cluster and against Kafka's."""
