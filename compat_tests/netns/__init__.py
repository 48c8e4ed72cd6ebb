"""Brokers, ZooKeeper and clients in separate network namespaces, under faults that must not lose acknowledged data.

Needs Linux, root, `ip` and TUN devices (`make test-netns`).
"""
