"""`odradek ready`: does a broker answer? For scripts and for the health check of a container."""

from __future__ import annotations

import os
import time

import click

from odradek.cli.output import bootstrap_option
from odradek.client import Client, ClientError

_PAUSE_S = 0.02


@click.command()
@bootstrap_option
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0), default=30.0, show_default=True, metavar="SECONDS"
)
@click.option("--container", is_flag=True, help="Ask the broker of this container, wherever KAFKA_LISTENERS put it.")
def command(bootstrap: str, timeout_s: float, container: bool) -> int:
    """Wait until a broker answers Metadata. Exits 0 then, 1 when the time is over."""
    if container:
        bootstrap = _own_address()
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            with Client(bootstrap, timeout_s=max(deadline - time.monotonic(), 1.0)) as client:
                client.metadata([])
            return 0
        except ClientError as error:
            if time.monotonic() >= deadline:
                click.echo(f"odradek: {error}", err=True)
                return 1
            time.sleep(_PAUSE_S)


def _own_address() -> str:
    # Only a container pays for loading the broker's settings.
    from odradek.cli.in_container import own_address

    try:
        return own_address(os.environ)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
