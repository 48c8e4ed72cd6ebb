"""A broker's work on its log directories besides requests: flushing, cleaning, checkpoints, identity."""
