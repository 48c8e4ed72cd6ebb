"""Records of `__transaction_state`: the bytes are Kafka's, of all versions."""

from __future__ import annotations

import pytest

from odradek_broker.transactions.core.transaction_metadata import Producer, TransactionMetadata, TransactionState
from odradek_broker.transactions.core.transaction_records import TransactionRecord, decode_record, encode_record
from odradek_wire.errors import DecodeError

KEY = bytes.fromhex("0000" + "0001" + "74")

ONGOING = TransactionMetadata(
    Producer(7, 5),
    60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({("b", 1), ("a", 0), ("b", 0)}),
    start_ms=0x18BCFE56800,
    updated_ms=0x18BCFE56801,
    previous_producer_id=7,
    client_version=2,
)
ONGOING_V0 = bytes.fromhex(
    "0000"
    "0000000000000007" "0005" "0000ea60" "01"
    "00000002" "0001" "61" "00000001" "00000000" "0001" "62" "00000002" "00000000" "00000001"
    "0000018bcfe56801" "0000018bcfe56800"
)  # fmt: skip
ONGOING_V1 = bytes.fromhex(
    "0001"
    "0000000000000007" "0005" "0000ea60" "01"
    "03" "02" "61" "02" "00000000" "00" "02" "62" "03" "00000000" "00000001" "00"
    "0000018bcfe56801" "0000018bcfe56800"
    "02" "00" "08" "0000000000000007" "02" "02" "0002"
)  # fmt: skip


def test_value_version_1_has_tagged_fields() -> None:
    record = TransactionRecord("t", ONGOING, 1)
    assert encode_record(record) == (KEY, ONGOING_V1)
    assert decode_record(KEY, ONGOING_V1) == record


def test_value_version_0_has_no_tagged_fields() -> None:
    assert encode_record(TransactionRecord("t", ONGOING, 0)) == (KEY, ONGOING_V0)
    back = decode_record(KEY, ONGOING_V0)
    assert back is not None
    assert back.transaction is not None
    assert back.version == 0
    assert (back.transaction.producer, back.transaction.partitions) == (ONGOING.producer, ONGOING.partitions)
    assert (
        back.transaction.previous_producer_id,
        back.transaction.next_producer_id,
        back.transaction.client_version,
    ) == (-1, -1, 0)


def test_an_empty_transaction_has_null_partitions() -> None:
    empty = TransactionMetadata.new(7, 60_000).initialize(Producer(7, 0), -1, 60_000, 1)
    _, value = encode_record(TransactionRecord("t", empty, 0))
    assert value == bytes.fromhex("0000000000000000000700000000ea6000ffffffff0000000000000001ffffffffffffffff")
    assert decode_record(KEY, value) == TransactionRecord(
        "t", TransactionMetadata(Producer(7, 0), 60_000, updated_ms=1), 0
    )


def test_a_complete_transaction_has_empty_partitions() -> None:
    decided = TransactionMetadata(Producer(7, 32766), 1, state=TransactionState.ONGOING, start_ms=1).decide(
        True, 2, 8, 2
    )
    _, value = encode_record(TransactionRecord("t", decided))
    assert value is not None
    assert value.endswith(bytes.fromhex("03000800000000000000070108000000000000000802020002"))
    back = decode_record(KEY, value)
    assert back is not None
    assert back.transaction is not None
    assert back.transaction.next_producer_id == 8
    complete = back.transaction.complete(3)
    assert (complete.producer, complete.previous_producer_id, complete.next_producer_id) == (Producer(8, 0), 7, -1)
    _, value = encode_record(TransactionRecord("t", complete, 0))
    assert value == bytes.fromhex("00000000000000000008000000000001040000000000000000000000030000000000000001")


def test_unknown_tagged_fields_of_a_newer_broker_are_skipped() -> None:
    value = bytearray(ONGOING_V1 + bytes.fromhex("03020006"))
    value[len(ONGOING_V1) - 15] = 3
    assert decode_record(KEY, bytes(value)) == TransactionRecord("t", ONGOING)


@pytest.mark.parametrize("state", list(TransactionState))
def test_every_state_is_read_back(state: TransactionState) -> None:
    record = TransactionRecord("t", TransactionMetadata(Producer(7, 5), 1, state=state, start_ms=1, updated_ms=2))
    assert decode_record(*encode_record(record)) == record


def test_a_record_without_a_value_is_a_tombstone() -> None:
    assert encode_record(TransactionRecord("t", None)) == (KEY, None)
    assert decode_record(KEY, None) == TransactionRecord("t", None)


def test_keys_and_values_of_unknown_versions_are_ignored() -> None:
    assert decode_record(b"\x00\x01\x00\x01t", ONGOING_V1) is None
    assert decode_record(KEY, b"\x00\x02" + ONGOING_V1[2:]) is None


@pytest.mark.parametrize("value", [ONGOING_V1[:-3], ONGOING_V0[:-1], ONGOING_V0[:16] + b"\x63" + ONGOING_V0[17:]])
def test_a_known_version_with_a_broken_value_is_an_error(value: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_record(KEY, value)
