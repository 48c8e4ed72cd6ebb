"""odradek_broker: one broker. Network, API handlers, partitions, coordinators, purgatory; knows the controller, the log
and the wire."""
