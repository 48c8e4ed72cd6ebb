"""`python -m odradek_pipeline`: the same as `odradek pipeline`."""

from odradek_pipeline.cli import main

main()
