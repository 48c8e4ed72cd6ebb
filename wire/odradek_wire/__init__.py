"""Kafka's wire protocol: bytes to messages and back. Knows no socket, file, clock or broker."""
