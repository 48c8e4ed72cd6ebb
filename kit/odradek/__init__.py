"""Odradek for its users: a Kafka broker inside your process, on your command line and in your tests."""
