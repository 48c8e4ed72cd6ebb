"""Sending a response with slices of log files to its socket.

Owns the choice between `os.sendfile` and reading, and waiting for the socket to accept more. Every other response is
bytes and goes through the transport. A connection sends one response at a time.

The sender writes to the descriptor directly, past the transport, only while the transport has nothing buffered, so that
bytes stay in order. Where the platform or the listener's transport (TLS) has no sendfile, slices are read.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import cast

from odradek_log.log_segment import FileSlice
from odradek_wire.codec import Part

SENDFILE_MIN_BYTES = 64 * 1024
"""Below this, one read and one write through the transport are cheaper than the system calls around sendfile. The
broker's CPU time for a response with read / with sendfile: 4 KiB 27 / 51 us, 64 KiB 38 / 40 us, 256 KiB 296 / 67 us."""
MSG_MORE: int = getattr(socket, "MSG_MORE", 0)
_SHORTER = "a log file is shorter than the batches that were found in it"


RESPONSE_HEAD = Struct(">ii")
RESPONSE_HEAD_WITH_TAGS = Struct(">iib")


def response_head(correlation_id: int, tagged: bool, size: int) -> bytes:
    """Return size and header of a response whose body has `size` bytes. If `tagged`, the header is v1, which ends with
    tagged fields, here none."""
    if tagged:
        return RESPONSE_HEAD_WITH_TAGS.pack(size + 5, correlation_id, 0)
    return RESPONSE_HEAD.pack(size + 4, correlation_id)


class Sender:
    """Sends lists of parts over one transport. Calls `sent` after a response that had to wait for the socket, and
    `truncated` when the disk fails in the middle of a response, before it aborts the transport."""

    __slots__ = (
        "_fd",
        "_loop",
        "_parts",
        "_position",
        "_sent",
        "_socket",
        "_transport",
        "_truncated",
        "_waiting_fd",
        "sending",
    )

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        sent: Callable[[], None],
        truncated: Callable[[OSError], None],
    ) -> None:
        self._truncated = truncated
        self._transport = transport
        self._loop = loop
        self._sent = sent
        self._socket: socket.socket | None = None
        self._fd = -1
        self._parts: deque[Part] = deque()
        self._position = 0
        self._waiting_fd = -1
        self.sending = False

    def send(self, correlation_id: int, tagged: bool, parts: list[Part]) -> bool:
        """Send a response, size and header first. Return True if it is sent or in the transport's buffer, False if
        `sent` will be called."""
        in_files = 0
        for part in parts:
            if part.__class__ is FileSlice:
                in_files += len(part)
        if in_files < SENDFILE_MIN_BYTES or not self._direct():
            body = b"".join([_bytes_of(part) if part.__class__ is FileSlice else cast(bytes, part) for part in parts])
            self._transport.write(response_head(correlation_id, tagged, len(body)) + body)
            return True
        size = sum([len(part) for part in parts])
        self._parts.append(response_head(correlation_id, tagged, size))
        self._parts.extend(parts)
        self._position = 0
        self.sending = True
        self._push()
        return not self.sending

    def close(self) -> None:
        """Stop sending, because the transport has closed its descriptor."""
        self._parts.clear()
        self.sending = False
        self._stop_waiting()
        if self._socket is not None:
            self._socket.detach()
            self._socket = None

    def _direct(self) -> bool:
        """Return whether the sender may write to the descriptor; prepare `_socket` if so."""
        transport = self._transport
        if transport.get_write_buffer_size():
            return False
        if self._socket is None:
            if not hasattr(os, "sendfile") or transport.get_extra_info("sslcontext") is not None:
                return False
            plain = transport.get_extra_info("socket")
            if plain is None:
                return False
            # A second object for the transport's own descriptor; it is detached, never closed.
            self._fd = plain.fileno()
            self._socket = socket.socket(plain.family, socket.SOCK_STREAM, plain.proto, fileno=self._fd)
            # The descriptor does not block, but the object does, after `socket.setdefaulttimeout`.
            self._socket.settimeout(0)
        return True

    def _push(self) -> None:
        """Write until everything is sent or the socket is full."""
        try:
            while self._parts:
                self._push_one(self._parts[0])
        except BlockingIOError:
            self._wait()
        except OSError as error:
            self._abort(error)
        else:
            self.sending = False
            self._stop_waiting()

    def _push_one(self, part: Part) -> None:
        """Write one part, whole or in pieces."""
        assert self._socket is not None
        size = len(part)
        while self._position < size:
            if isinstance(part, FileSlice):
                done = os.sendfile(self._fd, part.fd, part.position + self._position, size - self._position)
                if done == 0:
                    raise OSError(_SHORTER)
            else:
                more = MSG_MORE if len(self._parts) > 1 else 0
                done = self._socket.send(memoryview(_bytes_of(part))[self._position :], more)
            self._position += done
        self._parts.popleft()
        self._position = 0

    def _wait(self) -> None:
        if self._waiting_fd < 0:
            # An event loop refuses to watch the descriptor of a transport: watch a duplicate.
            self._waiting_fd = os.dup(self._fd)
            self._loop.add_writer(self._waiting_fd, self._writable)

    def _writable(self) -> None:
        self._push()
        if not self.sending:
            self._sent()

    def _stop_waiting(self) -> None:
        if self._waiting_fd >= 0:
            self._loop.remove_writer(self._waiting_fd)
            os.close(self._waiting_fd)
            self._waiting_fd = -1

    def _abort(self, error: OSError) -> None:
        """Abort the transport after half a response: the client must reconnect."""
        if not isinstance(error, ConnectionError):
            self._truncated(error)
        self._parts.clear()
        self._stop_waiting()
        self._transport.abort()


def _bytes_of(part: Part) -> bytes | memoryview:
    if isinstance(part, bytes | memoryview):
        return part
    data = part.tobytes()
    if len(data) != len(part):
        raise OSError(_SHORTER)
    return data
