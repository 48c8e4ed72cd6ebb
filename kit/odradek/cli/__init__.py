"""The `odradek` command: what a person needs at a terminal.

Owns parsing, exit codes and the one clear line for bad input; each command lives in a module of its own that is
imported when it is called, so that `odradek up` answers quickly.
"""

from __future__ import annotations

import importlib
import sys

import click

COMMANDS = {
    "up": "Start a broker; print its bootstrap address when it really answers.",
    "ready": "Wait until a broker answers.",
    "topics": "List, describe, create, delete and grow topics.",
    "produce": "Write records to a topic, from arguments or standard input.",
    "consume": "Read records from a topic.",
    "groups": "List, describe, delete and reset consumer groups.",
    "cluster": "Watch brokers, leaders, replicas in sync and replicas on their way.",
    "reassign": "Move replicas to other brokers; empty a broker.",
    "elect": "Let the preferred replicas lead again.",
    "verify": "Compare the replicas of topics and name the first difference.",
    "configs": "Show and change settings of topics and brokers.",
    "pipeline": "Run the streaming job of odradek_pipeline (needs the `spark` extra).",
    "demo": "A broker, a stream of page views and the streaming job, in one go.",
}
EXIT_BAD_INPUT = 2


class _Commands(click.Group):
    """Imports `odradek.cli.<name>` when the command is called, not before."""

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
    """Entry point. Exits 0 when all went well, 2 on bad input (one line on standard error), 130 on Ctrl-C."""
    try:
        result = command.main(arguments, prog_name="odradek", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.ctx.get_help() if error.ctx is not None else "")
        sys.exit(EXIT_BAD_INPUT)
    except click.ClickException as error:
        print(f"odradek: {' '.join(error.format_message().split())}", file=sys.stderr)
        sys.exit(EXIT_BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        # The reader of a pipe (`odradek consume | head`) went away: that is how it says enough.
        sys.stderr.close()
        sys.exit(0)
    sys.exit(result if isinstance(result, int) else 0)
