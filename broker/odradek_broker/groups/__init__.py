"""The group coordinator: the shells that join its core to `__consumer_offsets`."""
