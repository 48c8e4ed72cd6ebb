"""The group coordinator: its state machines are in `core`; the modules here connect them to `__consumer_offsets`."""
