"""Diagnosis of a test that reached a timeout: stacks, asyncio tasks and unanswered requests of all its processes.

`pytest_hooks` chooses the moment, `collect` queries the processes below the test, `process` describes its own process.
"""
