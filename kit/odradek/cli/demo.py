"""`odradek demo`: the same as `make demo`."""

from __future__ import annotations

import click


@click.command()
def command() -> int:
    """Run a broker, a producer of page views and the streaming job, and check the result; takes about a minute.

    Starts no broker if the environment variable BOOTSTRAP has the address of one.
    """
    try:
        from rich.console import Console

        from odradek.demo import demo
    except ModuleNotFoundError as missing:
        raise click.ClickException(
            f"cannot import {missing.name}: run pip install 'odradek[spark]' confluent-kafka"
        ) from None
    return demo(Console())
