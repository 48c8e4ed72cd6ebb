"""A producer that sends while a query runs."""

import threading
import time
from collections.abc import Callable

from compat_tests.spark.job import Job, numbered


class Sender(threading.Thread):
    """Sends numbered records, a hundred at a time, until it is told to stop; `sent` were acknowledged."""

    def __init__(self, job: Job, topic: str, first: int) -> None:
        super().__init__(name="sender")
        self.sent = first
        self.enough = threading.Event()
        self._job = job
        self._topic = topic

    def run(self) -> None:
        while not self.enough.is_set():
            self._job.send(self._topic, numbered(self.sent, self.sent + 99, partitions=3))
            self.sent += 99


def until(condition: Callable[[], bool]) -> None:
    """Wait for something to become so."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in two minutes"
        time.sleep(0.02)
