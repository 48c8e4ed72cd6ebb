"""`odradek ready`: wait until a broker responds; for scripts and for the health check of a container."""

from __future__ import annotations

import os
import time

import click

from odradek.cli.output import bootstrap_option
from odradek.client import Client, ClientError

_RETRY_BACKOFF_S = 0.02


@click.command()
@bootstrap_option
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Give up after this time.",
)
@click.option("--container", is_flag=True, help="Use the address in this container's KAFKA_LISTENERS.")
def command(bootstrap: str, timeout_s: float, container: bool) -> int:
    """Wait until a broker responds to a Metadata request. Exits 0 when it does, 1 after the timeout."""
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
            time.sleep(_RETRY_BACKOFF_S)


def _own_address() -> str:
    # Imported only with --container, because it imports the broker's settings, which takes time.
    from odradek.cli.in_container import own_address

    try:
        return own_address(os.environ)
    except ValueError as error:
        raise click.ClickException(str(error)) from error
