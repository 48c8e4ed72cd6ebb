"""A port that forwards everything to another one, and records the API keys of the requests."""

from __future__ import annotations

import socket
import struct
from contextlib import suppress
from threading import Thread

from odradek_peers.processes import LOOPBACK


class Tap:
    """Listens on a free port until it is closed. `api_keys` has the API keys of all forwarded requests."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listening = socket.create_server((LOOPBACK, 0))
        self.port: int = self._listening.getsockname()[1]
        self.api_keys: set[int] = set()
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections; the open ones stay."""
        # close() alone would not wake the thread that waits in accept().
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection((LOOPBACK, self._target))
        except OSError:
            client.close()
            return
        Thread(target=self._forward_responses, args=(server, client), daemon=True).start()
        self._forward_requests(client, server)

    def _forward_requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError), client.makefile("rb") as requests:
            while len(size := requests.read(4)) == 4:
                request = requests.read(*struct.unpack(">i", size))
                self.api_keys.add(int.from_bytes(request[:2], "big"))
                server.sendall(size + request)
        _shut_down(server)

    @staticmethod
    def _forward_responses(server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError), server, client:
            while data := server.recv(1 << 16):
                client.sendall(data)
            _shut_down(client)


def _shut_down(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
