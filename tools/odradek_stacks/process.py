"""One process's threads, asyncio tasks and unanswered requests, as text.

A child process writes them into a file when it receives SIGUSR2. Every Python process below the tests imports this
module at its start, so costly imports happen only when the signal comes.
"""

from __future__ import annotations

import faulthandler
import os
import signal

DIRECTORY = "ODRADEK_STACKS"
"""The variable that names the directory of the dumps; it is set while tests run."""
END = "-- end of stacks"
_REQUEST_CHARACTERS = 300


def dump_file(directory: str, pid: int) -> str:
    """Return the file into which a process writes its stacks. It exists as soon as the process handles the signal."""
    return os.path.join(directory, str(pid))


def install() -> None:
    """Write this process's stacks into its dump file at SIGUSR2; do nothing if the variable names no directory.

    faulthandler writes the threads first, even if the interpreter hangs in a system call; tasks and requests need a
    running interpreter.
    """
    directory = os.environ.get(DIRECTORY, "")
    if not os.path.isdir(directory):
        return
    # A descriptor without a file object, which python -X dev would report as unclosed at the end.
    descriptor = os.open(dump_file(directory, os.getpid()), os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND, 0o600)

    def dump(number: int, frame: object) -> None:
        os.write(descriptor, f"{tasks_and_requests()}\n{END}\n".encode())

    signal.signal(signal.SIGUSR2, dump)
    faulthandler.register(signal.SIGUSR2, descriptor, all_threads=True, chain=True)


def threads() -> str:
    """Return the stack of every thread of this process, innermost frame last."""
    import sys
    import threading
    import traceback

    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )


def tasks_and_requests() -> str:
    """Return every pending asyncio task with its chain of awaits, and every request without a response."""
    import asyncio
    import gc

    tasks, requests = [], []
    for instance in gc.get_objects():
        if isinstance(instance, asyncio.Task) and not instance.done():
            tasks.append(f"task {instance.get_name()}\n" + "\n".join(_awaits(instance.get_coro())))
        elif _is_exchange(instance) and not instance.connection.closing:  # closed connections may still exist
            requests.append(repr(instance.request)[:_REQUEST_CHARACTERS])
    return "\n".join([*tasks, f"unanswered requests of clients and brokers: {len(requests)}", *requests])


def _is_exchange(instance: object) -> bool:
    """Return whether this is a broker's pending request, by the name of its class, which this module never imports."""
    return type(instance).__name__ == "Exchange" and type(instance).__module__.startswith("odradek_broker.")


def _awaits(coroutine: object) -> list[str]:
    """Return a line for each coroutine or generator in a chain of awaits, outermost first."""
    lines = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            lines.append(f"  {coroutine!r}"[:_REQUEST_CHARACTERS])
            break
        lines.append(f"  {frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}")
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return lines
