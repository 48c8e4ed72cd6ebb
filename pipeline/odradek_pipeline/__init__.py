"""PySpark jobs over any Kafka-compatible cluster."""
