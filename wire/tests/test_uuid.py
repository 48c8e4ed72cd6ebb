"""Uuids in text are Kafka's."""

import random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek_wire.uuid import METADATA_TOPIC_ID, ZERO_UUID, Uuid, random_uuid, uuid_from_text, uuid_to_text


def test_the_text_is_url_safe_base64_without_padding() -> None:
    assert uuid_to_text(ZERO_UUID) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert uuid_to_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert uuid_to_text(Uuid(b"\xfb\xff" * 8)) == "-__7__v_-__7__v_-__7_w"


@given(st.binary(min_size=16, max_size=16))
def test_text_and_bytes_are_inverse(raw: bytes) -> None:
    assert uuid_from_text(uuid_to_text(Uuid(raw))) == raw


@pytest.mark.parametrize(
    "text", ["", "A", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAAA", "not a uuid at all!!!!!", "ä" * 22]
)
def test_text_that_is_not_a_uuid_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Kafka UUID"):
        uuid_from_text(text)


def test_random_uuids_are_version_4_and_never_look_like_an_option() -> None:
    chance = random.Random(1)
    drawn = [random_uuid(chance.randbytes) for _ in range(2000)]
    assert len(set(drawn)) == 2000
    assert {UUID(bytes=uuid).version for uuid in drawn} == {4}
    assert {uuid_to_text(uuid)[0] == "-" for uuid in drawn} == {False}
