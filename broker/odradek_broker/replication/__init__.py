"""Copies of partitions: fetching from their leaders, and telling the controller which copies are in sync."""
