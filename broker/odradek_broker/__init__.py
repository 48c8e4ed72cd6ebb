"""One broker: network, API handlers, partitions, coordinators. Driven by metadata deltas alone."""
