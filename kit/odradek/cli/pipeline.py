"""`odradek pipeline`: the job of odradek_pipeline, whose command line is its own."""

from __future__ import annotations

from odradek_pipeline.cli import command

__all__ = ["command"]
