"""The replicas of a broker: partitions, their logs and log directories, fetchers, the ISR, and moves of replicas."""
