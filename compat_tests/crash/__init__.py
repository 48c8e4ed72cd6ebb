"""`odradek up` is killed at random times and at disk operations, and must keep all acknowledged and read data."""
