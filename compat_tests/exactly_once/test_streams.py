"""A job of Kafka Streams, killed in the middle of its transactions: a word count and a windowed join, exactly once."""

import random
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from odradek_peers import RunningTool, streams_libs

from compat_tests.exactly_once.java import JavaProgram, compiled
from compat_tests.exactly_once.reader import Reader

pytestmark = pytest.mark.peers

_LINES, _WORDS_IN_LINE, _PAIRS = 40, 3, 30
_VOCABULARY = ["beam", "castle", "father", "spool", "stairs", "star", "thread", "wood"]


class Job:
    """The job's topics and its input: batches of lines, and of records whose join partners may come a batch later."""

    def __init__(self, program: JavaProgram, servers: str, make_topic: Callable[..., str], directory: Path) -> None:
        self.directory = directory
        self.lines, self.counts, self.left, self.right, self.joined = (make_topic(partitions=2) for _ in range(5))
        self.words: Counter[str] = Counter()
        self._program = program
        self._servers = servers
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        self._random = random.Random(5)
        # Retention would delete records with old timestamps.
        self._begun_ms = int(time.time() * 1000)

    def start(self) -> RunningTool:
        """Start the job without a cache, so that it writes every single result; a transaction lasts about a batch."""
        return self._program.start(
            f"job-{self.lines}", self.lines, self.counts, self.left, self.right, self.joined,
            f"bootstrap.servers={self._servers}", f"state.dir={self.directory}", "commit.interval.ms=1000",
            "statestore.cache.max.bytes=0", "transaction.timeout.ms=4000", "session.timeout.ms=3000",
            "heartbeat.interval.ms=500", "auto.offset.reset=earliest",
        )  # fmt: skip

    def feed_lines(self) -> None:
        """Produce a batch of lines with words."""
        for _ in range(_LINES):
            words = self._random.choices(_VOCABULARY, k=_WORDS_IN_LINE)
            self.words.update(words)
            self._producer.produce(self.lines, " ".join(words))
        self._producer.flush()

    def feed(self, topic: str, batch: int) -> None:
        """Produce one side of a batch of pairs, whose timestamps are a few seconds apart."""
        for number in range(batch * _PAIRS, (batch + 1) * _PAIRS):
            self.feed_one(topic, f"key-{number}", f"{number}", 10 * number)
        self._producer.flush()

    def feed_one(self, topic: str, key: str, value: str, after_ms: int) -> None:
        """Produce a record with a timestamp relative to the start of the test."""
        self._producer.produce(topic, value, key, timestamp=self._begun_ms + after_ms)
        self._producer.flush()


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> JavaProgram:
    """The compiled job."""
    return compiled("StreamsJob", streams_libs(), tmp_path_factory.mktemp("classes"))


@pytest.fixture
def job(program: JavaProgram, servers: str, make_topic: Callable[..., str], tmp_path: Path) -> Job:
    """A job that has not been started."""
    return Job(program, servers, make_topic, tmp_path / "state")


@pytest.fixture
def reader(servers: str) -> Iterator[Callable[..., Reader]]:
    """A function that returns readers, which are closed after the test."""
    with ExitStack() as open_readers:

        def read(topic: str, **options: str) -> Reader:
            made = Reader(servers, topic, **options)
            open_readers.callback(made.close)
            return made

        yield read


def test_a_killed_streams_job_counts_and_joins_exactly_once(job: Job, reader: Callable[..., Reader]) -> None:
    counts, joined = reader(job.counts), reader(job.joined)
    written = reader(job.counts, isolation="read_uncommitted")

    def read_all_and_kill_in_the_next_transaction(running: RunningTool, batch: int) -> None:
        counts.read_count(job.words.total(), program=running)
        joined.read_count(batch * _PAIRS, program=running)
        written.read_rest()
        known = len(written.records)
        job.feed_lines()
        job.feed(job.left, batch + 1)
        job.feed(job.right, batch)
        written.read_count(known + 1, program=running)
        running.kill()

    job.feed_lines()
    job.feed(job.left, 0)
    with job.start() as first:
        read_all_and_kill_in_the_next_transaction(first, 0)
    with job.start() as second:
        read_all_and_kill_in_the_next_transaction(second, 1)
    # Only the changelogs are left. The producer of the open transaction is unknown, so the transaction must time out.
    shutil.rmtree(job.directory)
    with job.start() as third:
        counts.read_count(job.words.total(), program=third)
        joined.read_count(2 * _PAIRS, program=third)
        job.feed_lines()
        job.feed(job.right, 2)
        joined.read_count(3 * _PAIRS, program=third)
        job.feed_one(job.left, "apart", "early", 5_000)
        job.feed_one(job.right, "apart", "late", 5_000 + 10_001)
        job.feed_one(job.left, "apart", "later", 5_000 + 10_001)
        joined.read_count(3 * _PAIRS + 1, program=third)
        counts.read_count(job.words.total(), program=third)
        assert third.terminate() == 143
    for each in (counts, joined, written):
        each.read_rest()

    series: defaultdict[str, list[int]] = defaultdict(list)
    for record in counts.records:
        series[(record.key() or b"").decode()].append(int(record.value() or b""))
    assert series == {word: list(range(1, total + 1)) for word, total in job.words.items()}
    assert sorted(joined.values) == sorted([*(f"{number}+{number}" for number in range(3 * _PAIRS)), "later+late"])
    assert len(written.records) > len(counts.records), "no transaction was open when the job was killed"
