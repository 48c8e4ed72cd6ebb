"""`odradek up`: run one broker, several, or one of a cluster over ZooKeeper, until SIGINT or SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from odradek.cli.in_container import default_listeners
from odradek.cli.output import parse_settings
from odradek.client.client import format_address, parse_address
from odradek.exceptions import ClientError, DataDirectoryError, SettingsError
from odradek.hosts.event_loop import log_refused_accepts, new_event_loop
from odradek.layout import PER_BROKER_SETTINGS, cluster_settings
from odradek.logs import LEVELS, stream_logger
from odradek.settings import gather
from odradek_broker.embedded import EmbeddedCluster
from odradek_broker.logger import Logger
from odradek_controller.configs.definition import InvalidConfigError
from odradek_controller.configs.removed import why_removed
from odradek_controller.configs.table import Release, Resource, definitions, parse
from odradek_log.log_errors import LogDirectoryError

_DEFAULT_PORT = 9092


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on. Default: 9092; 0 chooses a free port.")
@click.option(
    "--brokers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Number of brokers in this process; with --port 0 each has a free port, otherwise consecutive ones.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[/CHROOT]",
    help="Run one broker of the cluster in this ZooKeeper; other brokers may be Apache Kafka up to 3.9.",
)
@click.option("--broker-id", type=click.IntRange(min=0), help="Id of the broker; only with --zookeeper.")
@click.option("--host", default="localhost", show_default=True, help="Host to listen on and to advertise.")
@click.option("--data", type=click.Path(path_type=Path), help="Data directory. Default: a temporary one.")
@click.option("--durable", is_flag=True, help="Acknowledge records only when they are on the disk (fdatasync).")
@click.option("--config", "file", type=click.Path(path_type=Path), help="Kafka's server.properties file.")
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="A broker setting of Kafka; may be repeated.",
)
@click.option(
    "-t",
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITIONS]",
    help="Create this topic if it does not exist; may be repeated.",
)
@click.option(
    "--emulate", type=click.Choice(["3.9", "4.0", "4.3"]), help="Respond to ApiVersions as this release of Kafka."
)
@click.option("--container", is_flag=True, help="Read KAFKA_* environment variables, as the apache/kafka image does.")
@click.option(
    "--log-level",
    type=click.Choice(list(LEVELS)),
    default="info",
    show_default=True,
    help="Log this level and above, to standard error.",
)
@click.option("--log-json", is_flag=True, help="Log a JSON document per line.")
def command(
    port: int | None,
    brokers: int,
    zookeeper: str | None,
    broker_id: int | None,
    host: str,
    data: Path | None,
    durable: bool,
    file: Path | None,
    options: tuple[str, ...],
    topics: tuple[str, ...],
    emulate: str | None,
    container: bool,
    log_level: str,
    log_json: bool,
) -> int:
    """Start a broker, or several, and run until Ctrl-C, SIGINT or SIGTERM.

    Prints the value for a client's bootstrap.servers when all brokers respond, and logs to standard error.
    """
    overrides: dict[str, object] = dict(parse_settings(options))
    if emulate is not None:
        overrides["odradek.emulate"] = emulate
    if durable:
        overrides["odradek.sync"] = "always"
    if zookeeper is None and broker_id is not None:
        raise click.UsageError("--broker-id needs --zookeeper")
    if zookeeper is not None and broker_id is None:
        raise click.UsageError("--zookeeper needs --broker-id")
    if zookeeper is not None:
        _check_connect_string(zookeeper)
    if zookeeper is not None and (brokers > 1 or topics):
        raise click.UsageError("--zookeeper cannot be combined with --brokers and --topic")
    if port is not None and "listeners" in overrides:
        raise click.UsageError("--port and -o listeners=… cannot be combined")
    # Kafka 4.3 has removed the settings of ZooKeeper mode, which 3.9 has.
    definitions_3_9 = definitions(Resource.BROKER, Release.KAFKA_3_9) if zookeeper is not None else {}
    removed = {
        name: str(overrides.pop(name)) for name in list(overrides) if name in definitions_3_9 and why_removed(name)
    }
    partitions_of_topics = dict(_topic(topic) for topic in topics)
    logger = stream_logger(sys.stderr, as_json=log_json, level=log_level)
    try:
        for name, value in removed.items():
            parse(definitions_3_9[name], value)
        settings = gather(file=file, environment=os.environ if container else None, overrides=overrides)
    except (InvalidConfigError, SettingsError) as error:
        raise click.ClickException(str(error)) from error
    for warning in settings.warnings:
        warning.log(logger)
    values = dict(settings.values)
    if brokers > 1 and PER_BROKER_SETTINGS & set(values):
        raise click.UsageError(
            f"--brokers cannot be combined with {', '.join(sorted(PER_BROKER_SETTINGS & set(values)))}: each broker has"
            " its own"
        )
    with ExitStack() as stack:
        if data is None and not {"log.dirs", "log.dir"} & set(values):
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-")))
            # The temporary directory is removed with the process, so an fsync has no use.
            values.setdefault("odradek.sync", "false")
        try:
            broker_settings = _settings_of_brokers(values, brokers, host, port, data, container=container)
        except DataDirectoryError as error:
            raise click.ClickException(str(error)) from error
        loop = new_event_loop()
        log_refused_accepts(loop, logger)
        try:
            if zookeeper is None:
                loop.run_until_complete(_serve(broker_settings, partitions_of_topics, logger))
            else:
                identity = {"zookeeper.connect": zookeeper, "broker.id": str(broker_id), "node.id": str(broker_id)}
                settings_3_9 = {**broker_settings[0], **removed, **identity}
                loop.run_until_complete(_serve_over_zookeeper(settings_3_9, zookeeper, logger))
        except ImportError as error:
            raise click.ClickException(f"cannot import {error.name}: run pip install 'odradek[zookeeper]'") from error
        except OSError as error:
            raise click.ClickException(f"{error.strerror or error}{_location(error, broker_settings[0])}") from error
        except (LogDirectoryError, ValueError) as error:
            raise click.ClickException(str(error)) from error
        finally:
            loop.close()
    return 0


def _settings_of_brokers(
    values: dict[str, str], brokers: int, host: str, port: int | None, data: Path | None, *, container: bool
) -> list[dict[str, str]]:
    """Return the settings of each broker."""
    if port is None and container and "listeners" not in values:
        values |= default_listeners(values)
    first_port = _DEFAULT_PORT if port is None else port
    if port is not None:
        values.pop("listeners", None)
    if data is None:
        return [{"listeners": f"PLAINTEXT://{format_address(host, first_port)}"} | values]
    for name in ("log.dirs", "log.dir"):
        values.pop(name, None)
    ports = [first_port + number if first_port else 0 for number in range(brokers)]
    return cluster_settings(values, data, host, ports, [None] * brokers)


def _stop_signal() -> asyncio.Event:
    """Return an event that SIGINT and SIGTERM set."""
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    return stopped


async def _wait_for_end(stopped: asyncio.Event, failed: asyncio.Event) -> None:
    """Wait for a signal. Raises ClickException when the last broker has stopped because its disks failed."""
    waits = [asyncio.ensure_future(each.wait()) for each in (stopped, failed)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if failed.is_set():
        raise click.ClickException("every log directory has failed, so no broker is left")


async def _serve_over_zookeeper(settings: dict[str, str], zookeeper: str, logger: Logger) -> None:
    # Imported only with --zookeeper, because it imports kazoo.
    from odradek_broker.environment import BrokerEnvironment
    from odradek_broker.zookeeper.broker_process import DEFAULTS, BrokerProcess
    from odradek_controller.zookeeper.kazoo_client import KazooZooKeeper

    stopped = _stop_signal()
    timeout_ms = int({**DEFAULTS, **settings}["zookeeper.session.timeout.ms"])
    zk = await KazooZooKeeper.connect(zookeeper, session_timeout_ms=timeout_ms, reporter=logger)
    try:
        process = await BrokerProcess.start(settings, zk, BrokerEnvironment.of(settings, log=logger))
        try:
            listener = process.node.listeners[0]
            click.echo(format_address(listener.advertised_host, listener.advertised_port))
            await _wait_for_end(stopped, process.ended)
        finally:
            if not process.ended.is_set():
                await process.stop()
    finally:
        await zk.close()


async def _serve(broker_settings: list[dict[str, str]], topics: dict[str, int], logger: Logger) -> None:
    stopped = _stop_signal()
    cluster = await EmbeddedCluster.start(broker_settings, log=logger)
    try:
        # The topics of the data directory keep their partitions.
        existing = cluster.controller.image.topics
        await cluster.create_topics({name: partitions for name, partitions in topics.items() if name not in existing})
        listeners = [node.listeners[0] for node in cluster.nodes.values()]
        click.echo(",".join(format_address(each.advertised_host, each.advertised_port) for each in listeners))
        await _wait_for_end(stopped, cluster.ended)
    finally:
        await cluster.stop()


def _topic(text: str) -> tuple[str, int]:
    name, separator, partitions = text.partition(":")
    if not name or (separator and not (partitions.isdecimal() and int(partitions) > 0)):
        raise click.BadParameter(f"{text!r} is not of the form NAME or NAME:PARTITIONS", param_hint="--topic")
    return name, int(partitions) if separator else 1


def _check_connect_string(text: str) -> None:
    try:
        for address in text.partition("/")[0].split(","):
            parse_address(address)
    except ClientError:
        raise click.BadParameter(
            f"{text!r} is not of the form HOST:PORT[,HOST:PORT][/CHROOT]", param_hint="--zookeeper"
        ) from None


def _location(error: OSError, values: dict[str, str]) -> str:
    """Return the file that the error names, or the listeners and data directories that may have caused it."""
    if error.filename is not None:
        return f": {error.filename}"
    if isinstance(error, ConnectionError | TimeoutError):
        return ""
    return f" (listeners: {values['listeners']}, data: {values.get('log.dirs') or values.get('log.dir')})"
