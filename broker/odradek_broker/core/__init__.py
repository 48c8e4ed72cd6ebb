"""Synchronous state machines: no I/O, no clock, no randomness. Time comes in as an argument, effects come out."""
