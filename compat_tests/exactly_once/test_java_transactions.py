"""Transactions of Kafka's Java client, of both releases: Transactions.java describes the cases."""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from odradek_peers import KAFKA_3_9, KAFKA_4_3, JavaTools, libs

from compat_tests.brokers import new_broker
from compat_tests.exactly_once.conftest import CONFIG
from compat_tests.exactly_once.java import compiled

pytestmark = pytest.mark.peers

_CASES = 7
_RECORDS = 240


class Run:
    """The output of one run of the program."""

    def __init__(self, release: str, level: int, lines: list[str]) -> None:
        self.protocol = 2 if release == KAFKA_4_3 and level == 2 else 1
        self._cases: dict[str, dict[str, Any]] = {}
        for line in lines:
            output = json.loads(line)
            self._cases[output.pop("case")] = output

    def output(self, case: str) -> dict[str, Any]:
        """Return the output of a case that ran to its end."""
        assert "failed" not in self._cases[case], self._cases[case]["failed"]
        return self._cases[case]


@pytest.fixture(scope="module")
def servers_with_transaction_version_1(broker_name: str) -> Iterator[str]:
    """The address of a broker with transaction.version 1, which the newer client supports too."""
    with contextlib.closing(new_broker(broker_name, CONFIG)) as broker:
        broker.start()
        bootstrap = ("--bootstrap-server", broker.bootstrap_servers)
        JavaTools().run("kafka-features", *bootstrap, "downgrade", "--feature", "transaction.version=1")
        yield broker.bootstrap_servers


@pytest.fixture(scope="module", params=[(KAFKA_4_3, 2), (KAFKA_4_3, 1), (KAFKA_3_9, 2)], ids="{0[0]}-v{0[1]}".format)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of all cases in one process, with a client release and a transaction.version of the broker."""
    release, level = request.param
    servers = request.getfixturevalue("servers" if level == 2 else "servers_with_transaction_version_1")
    program = compiled("Transactions", libs(release), tmp_path_factory.mktemp("classes"), release)
    with program.start(servers, f"java-{release}-{level}") as running:
        return Run(release, level, [running.next_line() for _ in range(_CASES)])


def test_consume_transform_produce_is_exactly_once(run: Run) -> None:
    output = run.output("copied")

    assert output["committed"] == {
        str(partition): [f"copy of {number}" for number in range(partition, _RECORDS, 2)] for partition in (0, 1)
    }
    assert output["offsets"] == ["0 120 ", "1 120 "]
    assert output["aborts"] > 0
    assert output["written"] > _RECORDS


def test_read_committed_stops_before_open_and_skips_aborted_ones(run: Run) -> None:
    assert run.output("open") == {
        "open": [0, [], 1, ["aborted"]],
        "aborted": [2, [], 2, ["aborted"]],
        "committed": [4, ["committed"], 4, ["aborted", "committed"]],
    }


def test_the_oldest_open_transaction_holds_the_last_stable_offset(run: Run) -> None:
    written = ["first", "early", "late", "plain"]

    assert run.output("interleaved") == {
        "held": [1, ["first"], 5, written],
        "free": [6, ["first", "late", "plain"], 6, written],
    }


def test_a_second_producer_fences_the_first_and_aborts_its_transaction(run: Run) -> None:
    assert run.output("fenced") == {
        "sending": "InvalidProducerEpochException",
        "committing": "InvalidProducerEpochException",
        "aborting": "ProducerFencedException",
        "values": [4, ["successor"], 4, ["before", "successor"]],
    }


def test_offsets_take_effect_when_their_transaction_commits(run: Run) -> None:
    assert run.output("offsets") == {
        "seen": [[], ["0 3 three"], ["0 3 three"], ["0 3 three"]],
        "stranger": "CommitFailedException",
    }


def test_the_admin_client_describes_transactions_and_fences_producers(run: Run) -> None:
    output = run.output("administered")

    assert output.pop("partitions").endswith("-administered-0]")
    assert output == {
        "listed": ["Ongoing true"],
        "state": "Ongoing",
        "timeout": 60000,
        "producer": True,
        "first offset": 0,
        "committing": "ProducerFencedException",
        "values": [2, [], 2, ["lost"]],
    }


def test_a_transaction_times_out_and_long_timeouts_are_refused(run: Run) -> None:
    assert run.output("expired") == {
        "abandoned": [2, [], 2, ["abandoned"]],
        # With EndTxn v5 the error says that the transaction has ended; with earlier versions the producer is fenced.
        "committing": "InvalidTxnStateException" if run.protocol == 2 else "ProducerFencedException",
        "excessive": "KafkaException",
        "values": [4, ["next"], 4, ["abandoned", "next"]],
    }
