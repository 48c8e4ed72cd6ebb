"""`odradek pipeline`: the command line of the package odradek_pipeline."""

from __future__ import annotations

from odradek_pipeline.cli import command

__all__ = ["command"]
