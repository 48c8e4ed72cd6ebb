"""Diagnosis of a test that has timed out: stacks, asyncio tasks and unanswered requests of all its processes.

`pytest_hooks` decides when, `collect` gathers them from all processes, `process` makes those of one process.
"""
