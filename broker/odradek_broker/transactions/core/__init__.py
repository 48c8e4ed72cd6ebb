"""Transaction state machines: synchronous, the time is an argument, records and responses come out."""
