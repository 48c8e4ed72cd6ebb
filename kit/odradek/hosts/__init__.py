"""Hosts, which run the brokers of a `Cluster`: `thread` in this process, `process` in a child; `host` is their type."""
