"""Python imports this module at its start where the tests put this folder on PYTHONPATH."""

try:
    from odradek_stacks.process import install
except ImportError:  # an interpreter without this project
    pass
else:
    install()
