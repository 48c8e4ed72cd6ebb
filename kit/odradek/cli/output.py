"""Shared by the commands: the options --bootstrap and --json, the client, and rows as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odradek.client import Client, ClientError
from odradek_wire.errors import EncodeError

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, Any]
Command = TypeVar("Command", bound=Callable[..., Any])

bootstrap_option: Callable[[Command], Command] = click.option(
    "-b",
    "--bootstrap",
    default="localhost:9092",
    show_default=True,
    envvar="ODRADEK_BOOTSTRAP",
    show_envvar=True,
    metavar="HOST:PORT",
    help="Address of a broker, or of several, separated by commas.",
)
json_option: Callable[[Command], Command] = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@contextmanager
def connected(bootstrap: str) -> Iterator[Client]:
    """Yield a client. A ClientError, and a value that its request cannot hold, end the command with one line."""
    try:
        with Client(bootstrap) as client:
            yield client
    except (ClientError, EncodeError) as error:
        raise click.ClickException(str(error)) from error


def show(rows: Iterable[Row], columns: Sequence[str], *, as_json: bool) -> None:
    """Print the rows: as a JSON list, or as a table of `columns`."""
    rows = list(rows)
    if as_json:
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    Console(soft_wrap=False).print(table(rows, columns))


def table(rows: Sequence[Row], columns: Sequence[str]) -> Table:
    """Make a table of the rows, with numbers aligned to the right."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        numbers = bool(rows) and all(isinstance(row[column], int) for row in rows)
        made.add_column(column.replace("_", " "), justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(_cell(row[column]) for column in columns))
    return made


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def parse_settings(settings: Iterable[str]) -> dict[str, str]:
    """Parse `name=value` arguments. Raises BadParameter for another form and for a repeated name."""
    found: dict[str, str] = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        name = name.strip()
        if not separator or not name:
            raise click.BadParameter(f"{setting!r} is not of the form name=value")
        if name in found:
            raise click.BadParameter(f"{name} is given twice")
        found[name] = value
    return found
