"""The definitions equal those of Kafka's releases: messages, versions, fields, types, defaults, tags, nullability."""

import pytest
import release_differences as releases
from wire_facts import CASES, FACTS, KINDS, OURS, Json, default_of, definition_for, snake_case, versions, within

from odradek_wire.apis import APIS
from odradek_wire.notation import TYPES, MessageType, StructType

Line = tuple[object, ...]


def their_fields(release: str, message: str, facts: Json, version: int) -> list[Line]:
    """Return a line for each field of that version in wire order, structs unfolded, tagged fields last."""
    new_name = releases.RENAMED_MESSAGES.get(message, message)

    def unfold(fields: list[Json], path: str) -> list[Line]:
        lines: list[Line] = []
        present = [f for f in fields if within(version, f.get("versions", f.get("tagged")))]
        plain = [f for f in present if not within(version, f.get("tagged"))]
        tagged = sorted((f for f in present if within(version, f.get("tagged"))), key=lambda f: int(f["tag"]))
        for field in plain + tagged:
            array = field["type"].startswith("[]")
            kind = field["type"].removeprefix("[]")
            name = snake_case(releases.RENAMED_FIELDS.get((new_name, field["name"]), field["name"]))
            lines.append(
                (
                    path + name,
                    releases.RENAMED_STRUCTS.get((new_name, kind), kind),
                    array,
                    within(version, field.get("nullable")),
                    int(field["tag"]) if field in tagged else None,
                    default_of(field),
                    "flexible" not in field,
                )
            )
            if kind not in TYPES:
                inner = field.get("fields") or facts["structs"][kind]["fields"]
                lines += unfold(inner, f"{path}{name}.")
        return lines

    return unfold(facts["fields"], "")


def our_fields(message: MessageType, version: int, leave_out: set[str]) -> list[Line]:
    def unfold(struct: StructType, path: str) -> list[Line]:
        lines: list[Line] = []
        for field in struct.present(version) + struct.tagged(version):
            if field.name in leave_out:
                continue
            lines.append(
                (
                    path + field.name,
                    field.type,
                    field.array,
                    field.nullable(version),
                    field.tag,
                    field.default,
                    field.flexible,
                )
            )
            if field.struct is not None:
                lines += unfold(field.struct, f"{path}{field.name}.")
        return lines

    return unfold(message.root, "")


@pytest.mark.parametrize(("release", "name"), CASES)
def test_every_version_has_exactly_the_fields_of_the_release(release: str, name: str) -> None:
    facts = FACTS[release][name]
    first, last = versions(facts["versions"])
    for version in range(first, last + 1):
        ours, our_version = definition_for(release, name, version)
        assert ours.min_version <= our_version <= ours.max_version
        flexible = within(version, facts.get("flexible"))
        assert ours.flexible(our_version) == flexible
        added = {snake_case(field) for owner, field in releases.TAGS_WITHOUT_NEW_VERSION if owner == name}
        leave_out = added if release == "3.9.1" else set()
        assert our_fields(ours, our_version, leave_out) == their_fields(release, name, facts, version), f"v{version}"


@pytest.mark.parametrize(("release", "name"), CASES)
def test_kind_and_key_are_those_of_the_release(release: str, name: str) -> None:
    facts = FACTS[release][name]
    ours, _ = definition_for(release, name, versions(facts["versions"])[0])
    if ours.name in releases.OTHER_LAYOUT.values():
        assert ours.kind in ("data", "coordinator-value")  # never served, so no response of an API
    elif facts["kind"] == "data":  # 3.9 has neither the kinds of coordinator records nor their types
        assert ours.kind in ("data", "coordinator-key", "coordinator-value")
    else:
        assert (ours.kind, ours.key) == (KINDS.get(facts["kind"], facts["kind"]), facts.get("key", -1))


def ignorable(name: str, facts: Json) -> dict[tuple[str, str], bool]:
    """Return whether an encoder drops each field, by owner struct and name, if the version lacks it."""

    def unfold(owner: str, fields: list[Json]) -> dict[tuple[str, str], bool]:
        found = {}
        for field in fields:
            found[owner, field["name"]] = bool(field.get("ignorable"))
            found |= unfold(field["type"].removeprefix("[]"), field.get("fields", []))
        return found

    found = unfold(name, facts["fields"])
    for struct, body in facts.get("structs", {}).items():
        found |= unfold(struct, body["fields"])
    return found


@pytest.mark.parametrize("name", sorted(OURS.keys() & (FACTS["3.9.1"].keys() | FACTS["4.3.0"].keys())))
def test_ignorable_fields_are_those_of_both_releases(name: str) -> None:
    in_3_9, in_4_3 = (
        ignorable(name, FACTS[release][name]) if name in FACTS[release] else {} for release in ("3.9.1", "4.3.0")
    )
    conflicts = {key for key in in_3_9.keys() & in_4_3.keys() if in_3_9[key] != in_4_3[key]}
    assert {(name, field) for _, field in conflicts} == {
        entry
        for entry in (
            *releases.IGNORABLE_IN_4_3,
            *releases.IGNORABLE_IN_3_9,
            *releases.IGNORABLE_IN_3_9_WITHOUT_EFFECT,
        )
        if entry[0] == name
    }
    expected = in_3_9 | in_4_3
    for owner, field in conflicts:
        expected[owner, field] = (name, field) not in releases.IGNORABLE_IN_3_9_WITHOUT_EFFECT
    ours = OURS[name]
    assert {
        (struct.name, f.name): f.ignorable for struct in (ours.root, *ours.structs.values()) for f in struct.fields
    } == {
        (owner, snake_case(field)): value
        for (owner, field), value in expected.items()
        if (name, field) not in releases.RENAMED_FIELDS
    }


def test_every_definition_is_a_message_of_a_release() -> None:
    known = set(FACTS["4.3.0"]) | {releases.RENAMED_MESSAGES.get(name, name) for name in FACTS["3.9.1"]}
    assert set(OURS) - known == set(releases.OTHER_LAYOUT.values())
    assert known - set(OURS) == set()
    for name, message in OURS.items():
        stated = [
            versions(facts[name]["versions"])
            for facts in FACTS.values()
            if name in facts
            and facts[name]["versions"] != "none"
            and (message.kind != "coordinator-key" or "key" in facts[name])
        ]
        if stated:
            assert (message.min_version, message.max_version) == (min(v for v, _ in stated), max(v for _, v in stated))
        # A field that no version has would never be compared.
        for struct in (message.root, *message.structs.values()):
            for field in struct.fields:
                assert message.min_version <= field.since <= field.until
                assert field.since <= message.max_version


def test_the_table_of_apis_is_that_of_the_releases() -> None:
    expected: dict[int, Json] = {}
    for release, messages in FACTS.items():
        for facts in messages.values():
            if facts["kind"] == "request":
                expected.setdefault(facts["key"], {})[release] = (
                    None if facts["versions"] == "none" else versions(facts["versions"]),
                    frozenset(facts.get("listeners", ())) if facts["versions"] != "none" else frozenset(),
                    facts.get("unstable", False),
                )
    nothing = (None, frozenset(), False)
    assert {
        key: (
            (api.kafka_3_9, api.listeners_3_9, api.unstable_3_9),
            (api.kafka_4_3, api.listeners_4_3, api.unstable_4_3),
        )
        for key, api in APIS.items()
    } == {key: (both.get("3.9.1", nothing), both.get("4.3.0", nothing)) for key, both in expected.items()}


@pytest.mark.parametrize("key", sorted(APIS))
def test_the_table_of_apis_agrees_with_the_definitions(key: int) -> None:
    api = APIS[key]
    for message in (OURS[api.name + "Request"], OURS[api.name + "Response"]):
        assert (message.key, message.min_version, message.max_version) == (key, *api.versions)
        assert message.flexible_from == api.flexible_from
    for cls in (api.request_class(), api.response_class()):
        assert (
            key,
            *api.versions,
            api.flexible_from,
        ) == (cls.API_KEY, cls.MIN_VERSION, cls.MAX_VERSION, cls.FLEXIBLE_FROM)
