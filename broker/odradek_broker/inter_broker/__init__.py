"""Connections and channels to other brokers, and the queue that gathers and retries requests to them."""
