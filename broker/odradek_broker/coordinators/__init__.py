"""Shells that join coordinator cores to their partitions' logs and to timers."""
