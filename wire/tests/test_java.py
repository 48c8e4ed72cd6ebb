"""Apache Kafka's own generated classes read what we write, field by field, and write the same bytes."""

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import release_differences as releases
from hypothesis import given
from wire_facts import CASES, FACTS, definition_for, snake_case, versions
from wire_samples import MESSAGES, few_examples, messages

from odradek_wire.codec import definition, encode
from odradek_wire.message import Message
from odradek_wire.notation import Field, StructType
from odradek_wire.uuid import uuid_to_text

pytestmark = pytest.mark.peers

PEERS = Path(os.environ.get("ODRADEK_PEERS", "~/.cache/odradek/peers")).expanduser()

PACKAGES = {
    "kafka-clients": "org.apache.kafka.common.message",
    "kafka-metadata": "org.apache.kafka.common.metadata",
    "kafka-group-coordinator": "org.apache.kafka.coordinator.group.generated",
    "kafka-share-coordinator": "org.apache.kafka.coordinator.share.generated",
    "kafka-transaction-coordinator": "org.apache.kafka.coordinator.transaction.generated",
    "kafka-raft": "org.apache.kafka.raft.generated",
}


def java_class(release: str, name: str) -> str:
    facts = FACTS[release][name]
    suffix = "Data" if facts["kind"] in ("request", "response", "header") else ""
    return f"{PACKAGES[facts['jar']]}.{name}{suffix}"


def samples(cls: type[Message], version: int, unknown_tags: bool) -> list[Any]:
    """Return random messages."""
    found: list[Any] = []

    @few_examples
    @given(messages(cls, version, unknown_tags=unknown_tags))
    def collect(message: Any) -> None:
        found.append(message)

    collect()
    return found


def ask(release: str, questions: list[tuple[str, int, bytes]]) -> list[str]:
    libs = PEERS / f"kafka-{release}" / "libs"
    assert libs.is_dir(), f"no Apache Kafka {release} in {libs}: make test-peers fetches it"
    lines = "".join(f"{name} {version} {data.hex()}\n" for name, version, data in questions)
    program = Path(__file__).with_name("Converse.java")
    command = ["java", "-cp", f"{libs}/*", str(program)]
    done = subprocess.run(command, input=lines, capture_output=True, encoding="utf-8", timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.rstrip("\n").split("\n")
    assert len(answers) == len(questions)
    return answers


def as_json(message: Message, version: int, renamed: dict[str, str], lacking: set[str]) -> Any:
    """Return the fields of that version as Kafka's JSON converters write them, but with our names."""

    def struct(struct_type: StructType, value: Any) -> dict[str, Any]:
        written = {}
        for field in struct_type.present(version) + struct_type.tagged(version):
            inner = getattr(value, field.name)
            if field.name in lacking or (field.tag is not None and is_default(field, inner)):
                continue
            name = renamed.get(field.name, field.name)
            if field.type == "records" and inner is not None:
                name += "_size_in_bytes"
            written[name] = of(field, inner)
        return written

    def of(field: Field, value: Any) -> Any:
        if value is None:
            return None
        return [one(field, element) for element in value] if field.array else one(field, value)

    def one(field: Field, value: Any) -> Any:
        if field.struct is not None:
            return struct(field.struct, value)
        if field.type == "records":
            return len(value)
        if field.type == "bytes":
            return base64.b64encode(value).decode()
        return uuid_to_text(value) if field.type == "uuid" else value

    def is_default(field: Field, value: Any) -> bool:
        if field.default is ...:
            assert field.struct is not None
            return bool(value == getattr(type(message), field.struct.name)())
        return bool(value == field.default)

    return struct(definition(type(message)).root, message)


def with_our_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {snake_case(name): with_our_names(inner) for name, inner in value.items()}
    return [with_our_names(element) for element in value] if isinstance(value, list) else value


@pytest.mark.parametrize("release", sorted(FACTS))
def test_kafka_agrees_on_the_bytes_and_fields_of_every_message(release: str) -> None:
    questions: list[tuple[str, int, bytes]] = []
    expected = []
    for owner, name in CASES:
        facts = FACTS[release].get(name)
        if owner != release or facts is None or facts["jar"] not in PACKAGES:
            continue
        new_name = releases.RENAMED_MESSAGES.get(name, name)
        back = {snake_case(n): snake_case(o) for (m, o), n in releases.RENAMED_FIELDS.items() if m == new_name}
        tags = {snake_case(field) for message, field in releases.TAGS_WITHOUT_NEW_VERSION if message == name}
        first, last = versions(facts["versions"])
        for version in range(first, last + 1):
            ours, our_version = definition_for(release, name, version)
            lacking = tags if release == "3.9.1" else set()
            for message in samples(MESSAGES[ours.name], our_version, unknown_tags=not lacking):
                data = encode(message, our_version)
                questions.append((java_class(release, name), version, data))
                renamed = back if release == "3.9.1" else {}
                expected.append((as_json(message, our_version, renamed, lacking), data.hex()))
    assert len(questions) > 500
    wrong = []
    for question, answer, wanted in zip(questions, ask(release, questions), expected, strict=True):
        verdict, _, rest = answer.partition(" ")
        fields, _, written = rest.rpartition(" ")
        if verdict != "ok" or (with_our_names(json.loads(fields)), written) != wanted:
            wrong.append((question, answer, wanted))
    assert wrong == [], f"{len(wrong)} of {len(questions)}"
