"""The rows of ListTransactions and DescribeTransactions, and the filters."""

from __future__ import annotations

import pytest
from broker.tests.transactions.core_alone import A0, A1, B0, CoreAlone

from odradek_broker.transactions.core.transaction_listing import TransactionFilter
from odradek_broker.transactions.core.transaction_metadata import Producer
from odradek_wire.codec import encode
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Struct
from odradek_wire.messages.describe_transactions import DescribeTransactionsResponse
from odradek_wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse

State = DescribeTransactionsResponse.TransactionState


def fields(struct: Struct) -> dict[str, object]:
    return {name: getattr(struct, name) for name in type(struct).__slots__}


def busy_core() -> CoreAlone:
    """Transactions: orders-1 is open for 3 s, orders-2 has just begun, payments is complete, idle has never begun."""
    core = CoreAlone()
    for id_ in ("orders-1", "payments", "idle", "orders-2"):
        core.init(id_)
    core.add(Producer(1000, 0), A0, transactional_id="orders-1")
    core.add(Producer(1001, 0), A0, transactional_id="payments")
    core.end(Producer(1001, 0), transactional_id="payments")
    core.write_markers()
    core.pass_time(3000)
    core.add(Producer(1003, 0), A0, transactional_id="orders-2")
    return core


def listed(core: CoreAlone, request: ListTransactionsRequest) -> list[str]:
    wanted = TransactionFilter.of(request)
    assert isinstance(wanted, TransactionFilter)
    return [row.transactional_id for row in core.shard.list(wanted, core.now) if row is not None]


def test_an_open_transaction_is_described_with_its_partitions_by_topic() -> None:
    core = CoreAlone()
    core.begun(B0, A1, A0)
    begun_ms = core.now.wall_ms
    core.pass_time(7)
    described = core.shard.describe("t")
    expected = State(
        0, "t", "Ongoing", 60_000, begun_ms, 1000, 0,
        [DescribeTransactionsResponse.TopicData("a", [0, 1]), DescribeTransactionsResponse.TopicData("b", [0])],
    )  # fmt: skip
    response = DescribeTransactionsResponse
    assert encode(response(transaction_states=[described]), 0) == encode(response(transaction_states=[expected]), 0)


@pytest.mark.parametrize(
    ("transactional_id", "error"),
    [("unknown", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND), ("", ErrorCode.INVALID_REQUEST)],
)
def test_an_unknown_transactional_id_is_not_described(transactional_id: str, error: ErrorCode) -> None:
    described = CoreAlone().shard.describe(transactional_id)
    assert (described.error_code, described.transactional_id, described.transaction_state) == (
        error,
        transactional_id,
        "",
    )


def test_without_filters_all_transactions_are_listed() -> None:
    core = busy_core()
    wanted = TransactionFilter.of(ListTransactionsRequest())
    assert isinstance(wanted, TransactionFilter)
    assert [fields(row) for row in core.shard.list(wanted, core.now) if row is not None] == [
        fields(ListTransactionsResponse.TransactionState(*row))
        for row in [
            ("orders-1", 1000, "Ongoing"),
            ("payments", 1001, "CompleteCommit"),
            ("idle", 1002, "Empty"),
            ("orders-2", 1003, "Ongoing"),
        ]
    ]


@pytest.mark.parametrize(
    ("states", "ids", "unknown"),
    [
        (["Ongoing"], ["orders-1", "orders-2"], ()),
        (["CompleteCommit", "Empty"], ["payments", "idle"], ()),
        (["Dead", "PrepareEpochFence"], [], ()),
        (["Empty", "Idle", "empty"], ["idle"], ("Idle", "empty")),
        (["ongoing"], [], ("ongoing",)),
    ],
)
def test_state_filters_use_names_and_unknown_ones_are_returned(
    states: list[str], ids: list[str], unknown: tuple[str, ...]
) -> None:
    request = ListTransactionsRequest(state_filters=states)
    assert listed(busy_core(), request) == ids
    wanted = TransactionFilter.of(request)
    assert isinstance(wanted, TransactionFilter)
    assert wanted.unknown_states == unknown


def test_transactions_are_filtered_by_producer_id() -> None:
    assert listed(busy_core(), ListTransactionsRequest(producer_id_filters=[1003, 1002, 5])) == ["idle", "orders-2"]


@pytest.mark.parametrize(
    ("duration_ms", "ids"),
    [
        (-1, ["orders-1", "payments", "idle", "orders-2"]),
        (0, ["orders-1", "payments", "idle"]),
        (2999, ["orders-1", "payments", "idle"]),
        # As in Kafka, an id without a transaction passes every duration: its start is -1.
        (3000, ["idle"]),
    ],
)
def test_transactions_are_filtered_by_duration(duration_ms: int, ids: list[str]) -> None:
    assert listed(busy_core(), ListTransactionsRequest(duration_filter=duration_ms)) == ids


@pytest.mark.parametrize(
    ("pattern", "ids"),
    [
        ("orders-.*", ["orders-1", "orders-2"]),
        ("orders", []),
        ("(?i)PAY.*", ["payments"]),
        ("", ["orders-1", "payments", "idle", "orders-2"]),
        (None, ["orders-1", "payments", "idle", "orders-2"]),
        (r"[a-z]+-\d", ["orders-1", "orders-2"]),
        ("id(?:le|ol)", ["idle"]),
        ("(?P<first>i)dle", ["idle"]),
    ],
)
def test_a_pattern_matches_whole_ids(pattern: str | None, ids: list[str]) -> None:
    assert listed(busy_core(), ListTransactionsRequest(transactional_id_pattern=pattern)) == ids


@pytest.mark.parametrize("pattern", ["(", "[a", "a**", r"(a)\1", "(?=a)a", "(?<!b)a", "(?>a)", "a++", "(?P<x>a)(?P=x)"])
def test_a_pattern_that_re2_does_not_support_is_refused(pattern: str) -> None:
    request = ListTransactionsRequest(transactional_id_pattern=pattern)
    assert TransactionFilter.of(request) == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_no_pattern_takes_exponential_time() -> None:
    found = TransactionFilter.of(ListTransactionsRequest(transactional_id_pattern="(a+)+b"))
    assert isinstance(found, TransactionFilter)
    # A backtracking search would take exponential time.
    assert found.pattern.fullmatch("a" * 10_000) is None


@pytest.mark.parametrize("pattern", [r"\\1", r"\(\?=", r"a\++", "[(?=]+"])
def test_a_pattern_that_resembles_unsupported_syntax_is_accepted(pattern: str) -> None:
    assert isinstance(
        TransactionFilter.of(ListTransactionsRequest(transactional_id_pattern=pattern)), TransactionFilter
    )


def test_filters_are_combined() -> None:
    request = ListTransactionsRequest(["Ongoing"], [1000, 1001, 1003], 1000, "orders-.*")
    assert listed(busy_core(), request) == ["orders-1"]
