"""What all tests share: a random example that takes long on a busy machine has failed nothing, and a test that waited
in vain is reported with the stacks of its processes."""

from hypothesis import settings

pytest_plugins = ["odradek_stacks.pytest_hooks"]

settings.register_profile("odradek", deadline=None)
settings.load_profile("odradek")
