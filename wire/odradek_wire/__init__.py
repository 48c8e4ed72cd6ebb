"""Kafka's wire protocol: decodes bytes to messages and encodes messages to bytes. Knows no sockets, files or
brokers."""
