"""How a response with slices of log files reaches its socket."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from odradek_broker.network.sender import SENDFILE_MIN_BYTES, Sender
from odradek_log.disk import RealDisk
from odradek_log.log_environment import LogEnvironment
from odradek_log.log_segment import FileSlice, LogSegment
from odradek_log.open_files import OpenFiles


@pytest.mark.parametrize("size", [1000, SENDFILE_MIN_BYTES])
async def test_a_log_file_that_is_too_short_ends_the_connection(tmp_path: Path, size: int) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(bytes(size + 9))
    disk = RealDisk()
    env = LogEnvironment(disk=disk, wall_ms=lambda: 0, open_files=OpenFiles(disk), later=lambda *_: None)
    segment = LogSegment(env, str(tmp_path), 0, size=size + 10, created_ms=0, index_interval=4096)
    piece = FileSlice(segment.open(), 10, size)
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
        assert truncated == [f"log file {path} ends at byte {size + 9}, expected at least {size + 10} bytes"]
        sender.close()
        transport.abort()
