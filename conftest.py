"""Shared by all tests: Hypothesis without a deadline, because an example may take long on a busy machine, and a plugin
that adds the stacks of all processes to the report of a test that has timed out."""

from hypothesis import settings

pytest_plugins = ["odradek_stacks.pytest_hooks"]

settings.register_profile("odradek", deadline=None)
settings.load_profile("odradek")
