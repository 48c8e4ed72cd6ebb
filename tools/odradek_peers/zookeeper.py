"""One standalone server of Apache ZooKeeper, on loopback unless another address is named.

Owns its configuration, start, interruption and end. The data stays in `directory`, so that a server can be killed and
started again on its data.
"""

import contextlib
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek_peers.jars import zookeeper_libs
from odradek_peers.processes import LOOPBACK, free_ports, killed_with_parent, log_tail, wait_or_kill
from odradek_peers.ready import NotReady

_START_SECONDS = 120.0
_STOP_SECONDS = 30.0
_MAX_SESSION_TIMEOUT_MS = 60_000

# A small JVM that starts fast.
_JAVA = ["java", "-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]

_LOGBACK = """\
<configuration>
  <appender name="A" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>[%d] %p %m \\(%logger\\)%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="A"/></root>
</configuration>
"""


class ZooKeeperServer:
    """A server that can be started, stopped, killed, paused and started again; as a context manager it runs inside.

    It chooses a free port and keeps it. Without `directory` the data is in a temporary folder, which `close`
    deletes. Session timeouts are from 2 ticks to a minute; a session expires up to a tick late. `prefix` begins the
    command, for example to run the server in another network namespace. Unless `forced`, the server does not sync its
    writes: they survive its own end, but not that of the machine.
    """

    def __init__(
        self,
        *,
        directory: Path | None = None,
        tick_ms: int = 200,
        host: str = LOOPBACK,
        prefix: tuple[str, ...] = (),
        forced: bool = False,
    ) -> None:
        self._tick_ms = tick_ms
        self._forced = forced
        self._host = host
        self._prefix = prefix
        (self.port,) = free_ports(1)
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix="zookeeper-")
        self.directory = directory or Path(self._temporary.name if self._temporary else "")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def connect_string(self) -> str:
        """The server's host:port; for zookeeper.connect a chroot may follow."""
        return f"{self._host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process else None

    def start(self) -> Self:
        """Start the server and wait until it serves requests."""
        assert self._process is None, "already started"
        self.directory.mkdir(parents=True, exist_ok=True)
        settings, logging = self._write_settings()
        with (self.directory / "stdout.log").open("ab") as output:
            self._process = subprocess.Popen(
                [
                    *self._prefix, *killed_with_parent(), *_JAVA,
                    f"-Dzookeeper.forceSync={'yes' if self._forced else 'no'}",
                    f"-Dlogback.configurationFile={logging}", "-cp", f"{zookeeper_libs()}/*",
                    "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        try:
            self._wait_until_ready(self._process)
        except NotReady as failure:
            self.kill()
            raise NotReady(f"{failure}\n{self.log_tail()}") from failure
        return self

    def stop(self) -> None:
        """Stop the server with SIGTERM, and with SIGKILL after a timeout."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        wait_or_kill(self._process, _STOP_SECONDS)
        self._process = None

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Send SIGSTOP: connections stay, but the server does not respond and expires no session."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT, also if the server is not paused. Sessions that have timed out meanwhile expire soon."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop the server, and delete temporary data."""
        self.stop()
        if self._temporary:
            with contextlib.suppress(OSError):
                self._temporary.cleanup()

    def log_tail(self, lines: int = 40) -> str:
        """Return the last lines of the server's log and of its standard output."""
        return log_tail(self.directory, lines)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_settings(self) -> tuple[Path, Path]:
        settings = {
            "dataDir": str(self.directory / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": self._host,
            "tickTime": str(self._tick_ms),
            "maxSessionTimeout": str(_MAX_SESSION_TIMEOUT_MS),
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        file = self.directory / "zoo.cfg"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        logging = self.directory / "logback.xml"
        logging.write_text(_LOGBACK.format(file=self.directory / "server.log"))
        return file, logging

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._serves():
            if process.poll() is not None:
                raise NotReady(f"ZooKeeper on {self.connect_string} ended before it responded")
            if time.monotonic() > deadline:
                raise NotReady(f"ZooKeeper on {self.connect_string} did not respond within {_START_SECONDS:.0f} s")
            time.sleep(0.02)

    def _serves(self) -> bool:
        try:
            # A short timeout, because a server that is not ready may never respond to this request.
            with socket.create_connection((self._host, self.port), timeout=0.5) as connection:
                connection.sendall(b"srvr")
                response = b""
                while piece := connection.recv(4096):
                    response += piece
                return b"Mode: standalone" in response
        except OSError:
            return False
