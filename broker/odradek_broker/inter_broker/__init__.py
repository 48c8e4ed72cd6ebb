"""Channels to other brokers, and retries of requests to them."""
