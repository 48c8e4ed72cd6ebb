"""How a response with slices of log files reaches its socket."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from odradek_broker.network.sender import SENDFILE_MIN_BYTES, Sender
from odradek_log.disk import READ, RealDisk
from odradek_log.log_segment import FileSlice
from odradek_log.open_files import OpenFiles


class Holder:
    file = None


@pytest.mark.parametrize("size", [1000, SENDFILE_MIN_BYTES])
async def test_a_log_file_that_is_too_short_ends_the_connection(tmp_path: Path, size: int) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(size - 1))
    piece = FileSlice(OpenFiles(RealDisk()).open(str(path), READ, Holder()), 0, size)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        truncated: list[str] = []
        sender = Sender(transport, loop, lambda: None, lambda error: truncated.append(str(error)))
        try:
            sender.send(1, False, [piece])
        except OSError as error:
            truncated.append(str(error))
        assert truncated == ["a log file is shorter than the batches that were found in it"]
        sender.close()
        transport.abort()
