"""Replication state machines: synchronous, the time is an argument, effects come out."""
