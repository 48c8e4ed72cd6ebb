"""Transactions of Kafka's Java client, of both releases: Transactions.java says what each case does."""

import json
from itertools import count
from typing import Any

import pytest
from odradek_peers import KAFKA_3_9, KAFKA_4_3, libs

from compat_tests.exactly_once.java import compiled

pytestmark = pytest.mark.peers

_CASES = 7
_RECORDS = 240
_runs = count()


class Run:
    """What one run of the program saw."""

    def __init__(self, lines: list[str]) -> None:
        self._cases: dict[str, dict[str, Any]] = {}
        for line in lines:
            seen = json.loads(line)
            self._cases[seen.pop("case")] = seen

    def seen(self, case: str) -> dict[str, Any]:
        """What that case saw, if it went to its end."""
        assert "failed" not in self._cases[case], self._cases[case]["failed"]
        return self._cases[case]


@pytest.fixture(scope="module", params=[KAFKA_4_3, KAFKA_3_9])
def version(request: pytest.FixtureRequest) -> str:
    """The client's release."""
    return str(request.param)


@pytest.fixture(scope="module")
def run(version: str, servers: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """All cases with that client, one after another in one process."""
    program = compiled("Transactions", libs(version), tmp_path_factory.mktemp("classes"), version)
    with program.start(servers, f"java-{version}-{next(_runs)}") as running:
        return Run([running.next_line() for _ in range(_CASES)])


def test_what_is_consumed_transformed_and_produced_is_there_once(run: Run) -> None:
    seen = run.seen("copied")

    assert seen["committed"] == {
        str(partition): [f"copy of {number}" for number in range(partition, _RECORDS, 2)] for partition in (0, 1)
    }
    assert seen["offsets"] == ["0 120 ", "1 120 "]
    assert seen["aborts"] > 0
    assert seen["written"] > _RECORDS


def test_readers_of_committed_records_stop_before_an_open_transaction_and_skip_an_aborted_one(run: Run) -> None:
    assert run.seen("open") == {
        "open": [0, [], 1, ["aborted"]],
        "aborted": [2, [], 2, ["aborted"]],
        "committed": [4, ["committed"], 4, ["aborted", "committed"]],
    }


def test_the_oldest_open_transaction_holds_back_what_comes_after_it(run: Run) -> None:
    written = ["first", "early", "late", "plain"]

    assert run.seen("interleaved") == {
        "held": [1, ["first"], 5, written],
        "free": [6, ["first", "late", "plain"], 6, written],
    }


def test_a_second_producer_fences_the_first_and_aborts_its_transaction(run: Run) -> None:
    assert run.seen("fenced") == {
        "sending": "InvalidProducerEpochException",
        "committing": "InvalidProducerEpochException",
        "aborting": "ProducerFencedException",
        "values": [4, ["successor"], 4, ["before", "successor"]],
    }


def test_offsets_count_when_their_transaction_commits_and_never_a_strangers(run: Run) -> None:
    assert run.seen("offsets") == {
        "seen": [[], ["0 3 three"], ["0 3 three"], ["0 3 three"]],
        "stranger": "CommitFailedException",
    }


def test_the_admin_client_describes_an_open_transaction_and_fences_its_producer(run: Run) -> None:
    seen = run.seen("administered")

    assert seen.pop("partitions").endswith("-administered-0]")
    assert seen == {
        "listed": ["Ongoing true"],
        "state": "Ongoing",
        "timeout": 60000,
        "producer": True,
        "first offset": 0,
        "committing": "ProducerFencedException",
        "values": [2, [], 2, ["lost"]],
    }


def test_a_transaction_is_aborted_after_its_timeout_and_an_excessive_timeout_is_refused(run: Run, version: str) -> None:
    assert run.seen("expired") == {
        "abandoned": [2, [], 2, ["abandoned"]],
        # The newer client speaks EndTxn v5, and learns that its transaction is no more; the older one is taken for a
        # producer that was replaced.
        "committing": "InvalidTxnStateException" if version == KAFKA_4_3 else "ProducerFencedException",
        "excessive": "KafkaException",
        "values": [4, ["next"], 4, ["abandoned", "next"]],
    }
