"""Sending a response with slices of log files to its socket.

Owns the choice between `os.sendfile` and reading the slices, and waiting until the socket accepts more. Leaves
responses without slices to the connection. A connection sends one response at a time.

The sender writes directly to the descriptor only while the transport has nothing buffered, so that bytes stay in order.
It reads the slices if the platform has no sendfile, or if the listener has TLS.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import cast

from odradek_log.file_names import LOG
from odradek_log.log_segment import FileSlice
from odradek_wire.codec import Part

SENDFILE_MIN_BYTES = 64 * 1024
"""Below this, one read and one write through the transport are cheaper than the system calls around sendfile. The
broker's CPU time for a response with read / with sendfile: 4 KiB 27 / 51 us, 64 KiB 38 / 40 us, 256 KiB 296 / 67 us."""
MSG_MORE: int = getattr(socket, "MSG_MORE", 0)

RESPONSE_HEAD = Struct(">ii")
RESPONSE_HEAD_WITH_TAGS = Struct(">iib")


def response_head(correlation_id: int, tagged: bool, size: int) -> bytes:
    """Return size and header of a response whose body has `size` bytes. If `tagged`, the header is v1, with an empty
    list of tagged fields."""
    if tagged:
        return RESPONSE_HEAD_WITH_TAGS.pack(size + 5, correlation_id, 0)
    return RESPONSE_HEAD.pack(size + 4, correlation_id)


class Sender:
    """Sends the responses of one connection. Calls `sent` after a response that had to wait for the socket, and
    `truncated` after a disk error in the middle of a response, before it aborts the transport."""

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
        if in_files < SENDFILE_MIN_BYTES or not self._prepare_direct_write():
            body = b"".join([_bytes_of(part) if part.__class__ is FileSlice else cast(bytes, part) for part in parts])
            self._transport.write(response_head(correlation_id, tagged, len(body)) + body)
            return True
        size = sum([len(part) for part in parts])
        self._parts.append(response_head(correlation_id, tagged, size))
        self._parts.extend(parts)
        self._position = 0
        self.sending = True
        self._write_pending()
        return not self.sending

    def close(self) -> None:
        """Stop sending, because the transport has closed its descriptor."""
        self._parts.clear()
        self.sending = False
        self._stop_waiting()
        if self._socket is not None:
            self._socket.detach()
            self._socket = None

    def _prepare_direct_write(self) -> bool:
        """Return whether the sender may write to the descriptor, and prepare `_socket` for that."""
        transport = self._transport
        if transport.get_write_buffer_size():
            return False
        if self._socket is None:
            if not hasattr(os, "sendfile") or transport.get_extra_info("sslcontext") is not None:
                return False
            plain = transport.get_extra_info("socket")
            if plain is None:
                return False
            # A second socket object for the transport's descriptor: `close` detaches it, nothing closes it.
            self._fd = plain.fileno()
            self._socket = socket.socket(plain.family, socket.SOCK_STREAM, plain.proto, fileno=self._fd)
            # The descriptor does not block; a new socket object would, after a `socket.setdefaulttimeout`.
            self._socket.settimeout(0)
        return True

    def _write_pending(self) -> None:
        """Write until everything is sent or the socket is full."""
        try:
            while self._parts:
                self._write_part(self._parts[0])
        except BlockingIOError:
            self._wait_until_writable()
        except OSError as error:
            self._abort(error)
        else:
            self.sending = False
            self._stop_waiting()

    def _write_part(self, part: Part) -> None:
        """Write one part, whole or in pieces."""
        assert self._socket is not None
        size = len(part)
        while self._position < size:
            if isinstance(part, FileSlice):
                done = os.sendfile(self._fd, part.fd, part.position + self._position, size - self._position)
                if done == 0:
                    raise _ends_early(part, self._position)
            else:
                more = MSG_MORE if len(self._parts) > 1 else 0
                done = self._socket.send(memoryview(_bytes_of(part))[self._position :], more)
            self._position += done
        self._parts.popleft()
        self._position = 0

    def _wait_until_writable(self) -> None:
        if self._waiting_fd < 0:
            # Event loops do not watch the descriptor of a transport: watch a duplicate.
            self._waiting_fd = os.dup(self._fd)
            self._loop.add_writer(self._waiting_fd, self._writable)

    def _writable(self) -> None:
        self._write_pending()
        if not self.sending:
            self._sent()

    def _stop_waiting(self) -> None:
        if self._waiting_fd >= 0:
            self._loop.remove_writer(self._waiting_fd)
            os.close(self._waiting_fd)
            self._waiting_fd = -1

    def _abort(self, error: OSError) -> None:
        """Abort the transport in the middle of a response, so that the client reconnects."""
        if not isinstance(error, ConnectionError):
            self._truncated(error)
        self._parts.clear()
        self._stop_waiting()
        self._transport.abort()


def _bytes_of(part: Part) -> bytes | memoryview:
    if isinstance(part, bytes | memoryview):
        return part
    assert isinstance(part, FileSlice)
    data = part.tobytes()
    if len(data) != len(part):
        raise _ends_early(part, len(data))
    return data


def _ends_early(part: FileSlice, size: int) -> OSError:
    """Return the error for a log file that has only `size` bytes of a slice."""
    name, position = part.segment.path(LOG), part.position
    return OSError(f"log file {name} ends at byte {position + size}, expected at least {position + len(part)} bytes")
