"""Diagnosis of a test that waited in vain: stacks, asyncio tasks and unanswered requests of all its processes.

`pytest_hooks` decides when, `collect` asks the processes below the test, `process` describes its own process.
"""
