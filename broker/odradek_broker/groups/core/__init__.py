"""Group state machines: synchronous, with the time as an argument; they return records and responses."""
