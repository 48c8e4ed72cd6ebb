"""The broker: network, API handlers, replication, coordinators and the parts of its process."""
