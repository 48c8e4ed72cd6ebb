"""A scenario's clients on real connections, to any broker."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

from odradek_wire.apis import APIS
from odradek_wire.frames import decode_response, encode_request
from odradek_wire.message import Message

DUE_S = 30.0
"""The limit for a response that must come, on a slow machine."""


def sleep(ms: int) -> None:
    time.sleep(ms / 1000)


class Sockets:
    """One connection for each client of a scenario, to any broker."""

    def __init__(self, port: int, wait_s: float = 0.25, pass_time: Callable[[int], None] = sleep) -> None:
        """`wait_s` is the time after which a response that must not come yet counts as pending."""
        self.port = port
        self.wait_s = wait_s
        self.pass_time = pass_time
        self.connections: dict[str, socket.socket] = {}
        self.waiting: dict[str, tuple[type[Message], int]] = {}

    def ask(self, client: str, request: Message, version: int, due: bool = True) -> Message | None:
        if client not in self.connections:
            self.connections[client] = socket.create_connection(("127.0.0.1", self.port))
        frame = encode_request(request, version, 1, client)
        self.connections[client].sendall(struct.pack(">i", len(frame)) + frame)
        self.waiting[client] = (APIS[request.API_KEY].response_class(), version)  # type: ignore[index]
        return self.answer(client, due)

    def answer(self, client: str, due: bool = True) -> Message | None:
        connection = self.connections[client]
        connection.settimeout(DUE_S if due else self.wait_s)
        try:
            head = connection.recv(4)
        except TimeoutError:
            return None
        connection.settimeout(DUE_S)
        (size,) = struct.unpack(">i", head)
        frame = b""
        while len(frame) < size:
            frame += connection.recv(size - len(frame))
        cls, version = self.waiting.pop(client)
        return decode_response(cls, version, frame)[1]

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()
