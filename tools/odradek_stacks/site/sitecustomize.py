"""Imported by Python at its start in every process of the tests, which put this folder on PYTHONPATH."""

try:
    from odradek_stacks.process import install
except ImportError:  # an interpreter without this project
    pass
else:
    install()
