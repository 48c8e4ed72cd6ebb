"""A producer that sends while a query runs."""

import threading
import time
from collections.abc import Callable

from compat_tests.spark.job import Job, numbered


class Sender(threading.Thread):
    """Sends numbered records, 99 at a time, until the test sets `stop_requested`. `sent` is the number of acknowledged
    records."""

    def __init__(self, job: Job, topic: str, first: int) -> None:
        super().__init__(name="sender")
        self.sent = first
        self.stop_requested = threading.Event()
        self._job = job
        self._topic = topic

    def run(self) -> None:
        while not self.stop_requested.is_set():
            self._job.send(self._topic, numbered(self.sent, self.sent + 99, partitions=3))
            self.sent += 99


def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "the condition is not true after two minutes"
        time.sleep(0.02)
