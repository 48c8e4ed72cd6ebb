"""Odradek in a container, for tests that use `testcontainers`. Needs the extra `test` and a container engine."""

from __future__ import annotations

import io
import tarfile
import time
from typing import TYPE_CHECKING

from testcontainers.core.container import DockerContainer

from odradek.client import Client, ClientError
from odradek.settings import as_text, environment_variable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

IMAGE = "odradek:latest"
_HOST_PORT = 9092
_NETWORK_PORT = 19092
_ENVIRONMENT = "/tmp/odradek-environment"
# The engine chooses the host's port when it starts the container, so the broker waits for a file with that port.
_COMMAND = f"until [ -f {_ENVIRONMENT} ]; do sleep 0.05; done; . {_ENVIRONMENT}; exec odradek up --container"


class OdradekContainer(DockerContainer):
    """One broker in a container.

    Clients on this host connect to `get_bootstrap_server()`, containers of the same network (`with_network`) to port
    19092 of `network_alias`. `config` has Kafka's names and values, as for `Cluster`. The broker in the container
    logs a warning of an unknown setting, and ignores it.
    """

    def __init__(
        self,
        image: str = IMAGE,
        *,
        config: Mapping[str, object] | None = None,
        network_alias: str | None = None,
        start_timeout_s: float = 60.0,
    ) -> None:
        super().__init__(image, entrypoint=["sh", "-c", _COMMAND])
        self._network_alias = network_alias
        self._start_timeout_s = start_timeout_s
        self.with_exposed_ports(_HOST_PORT)
        for name, value in (config or {}).items():
            self.with_env(environment_variable(name), as_text(value))
        if network_alias is not None:
            self.with_network_aliases(network_alias)

    def get_bootstrap_server(self) -> str:
        """Return `host:port` for clients on this host."""
        return f"{self.get_container_host_ip()}:{self.get_exposed_port(_HOST_PORT)}"

    def start(self) -> Self:
        """Start the container; return when the broker responds at the address for clients on this host.

        Raises TimeoutError, with the broker's log, after `start_timeout_s`, and the exceptions of the container engine.
        """
        super().start()
        inside = self._network_alias or "$(hostname)"
        script = (
            f"export KAFKA_LISTENERS=PLAINTEXT_HOST://:{_HOST_PORT},PLAINTEXT://:{_NETWORK_PORT}\n"
            "export KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=PLAINTEXT_HOST:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
            f"export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT_HOST://{self.get_bootstrap_server()},"
            f"PLAINTEXT://{inside}:{_NETWORK_PORT}\n"
        )
        self._put_file(_ENVIRONMENT, script.encode())
        self._wait_until_ready()
        return self

    def _put_file(self, path: str, content: bytes) -> None:
        directory, _, name = path.rpartition("/")
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), 0o644, int(time.time())
            tar.addfile(entry, io.BytesIO(content))
        self.get_wrapped_container().put_archive(directory, archive.getvalue())

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self._start_timeout_s
        while True:
            try:
                with Client(self.get_bootstrap_server(), timeout_s=2) as client:
                    client.metadata([])
                return
            except ClientError as error:
                if time.monotonic() > deadline:
                    out, err = self.get_logs()
                    text = (out + err).decode("utf-8", "replace")
                    raise TimeoutError(
                        f"the broker did not respond within {self._start_timeout_s:g} s: {error}; its log is\n{text}"
                    ) from error
                time.sleep(0.05)
