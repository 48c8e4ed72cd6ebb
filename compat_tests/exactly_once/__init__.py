"""Kafka's own frameworks and transactional clients in Java: what they promise to do exactly once, they do here."""
