"""The `odradek` command line.

Owns the list of commands and the exit codes, and prints an error as one line. Each command is a module of this package;
it is imported only when the command is called, so that `odradek up` starts quickly.
"""

from __future__ import annotations

import importlib
import sys

import click

COMMANDS = {
    "up": "Start a broker, or several; print their bootstrap address.",
    "ready": "Wait until a broker responds.",
    "topics": "List, describe, create and delete topics; add partitions.",
    "produce": "Write records to a topic, from arguments or standard input.",
    "consume": "Read records from a topic.",
    "groups": "List, describe and delete consumer groups; reset their offsets.",
    "cluster": "Watch brokers, leaders, in-sync replicas and reassignments.",
    "reassign": "Move replicas to other brokers.",
    "elect": "Elect preferred leaders, or unclean leaders.",
    "verify": "Compare the replicas of topics; show the first difference.",
    "configs": "Show and change the settings of topics and brokers.",
    "pipeline": "Run a streaming job with Spark; needs odradek[spark].",
    "demo": "Run a broker, a producer of page views and the streaming job.",
}
EXIT_ERROR = 2


class _Commands(click.Group):
    """Imports `odradek.cli.<name>` only when the command is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"odradek.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="odradek", message="odradek %(version)s")
def command() -> None:
    """A broker that speaks the real Kafka protocol, for tests, CI and Spark."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command, and exit with the code that it returns, or 0.

    Exits 2, with one line on standard error, after bad input or when no broker responds, and 130 on Ctrl-C.
    """
    try:
        result = command.main(arguments, prog_name="odradek", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help() if error.ctx is not None else "")
        sys.exit(EXIT_ERROR)
    except click.ClickException as error:
        print(f"odradek: {' '.join(error.format_message().split())}", file=sys.stderr)
        sys.exit(EXIT_ERROR)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        # The reader of the pipe has exited, as in `odradek consume t | head`: no error.
        sys.stderr.close()
        sys.exit(0)
    sys.exit(result if isinstance(result, int) else 0)
