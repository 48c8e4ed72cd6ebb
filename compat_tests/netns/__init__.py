"""Brokers, ZooKeeper and clients as processes in network namespaces of their own, under faults: nothing may be lost.

Needs Linux, root, `ip` and TUN devices (`make test-netns`).
"""
