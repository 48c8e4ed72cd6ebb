"""What all tests share: a random example that takes long on a busy machine has failed nothing."""

from hypothesis import settings

settings.register_profile("odradek", deadline=None)
settings.load_profile("odradek")
