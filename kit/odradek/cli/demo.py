"""`odradek demo`: the same as `make demo`."""

from __future__ import annotations

import click


@click.command()
def command() -> int:
    """A broker, a stream of page views and the streaming job on it, in about a minute.

    BOOTSTRAP in the environment names another broker.
    """
    try:
        from rich.console import Console

        from odradek.demo import demo
    except ModuleNotFoundError as missing:
        raise click.ClickException(f"{missing.name} is missing: pip install 'odradek[spark]' confluent-kafka") from None
    return demo(Console())
