"""The group coordinator: the shells that join its state machines to `__consumer_offsets`."""
