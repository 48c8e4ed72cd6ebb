"""The znodes of ACLs: their paths, their data, and the notifications of changes.

Kafka's brokers and tools write these znodes, not the controller. An ACL is an AccessControlEntryRecord without the id,
which ZooKeeper does not store. The broker reads which resources have ACLs, and does not enforce them yet.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from odradek_wire.messages.access_control_entry_record import AccessControlEntryRecord

from .client import NoNodeError, ZooKeeper
from .json_text import InvalidZnodeError, JsonObject, decode, encode

LITERAL, PREFIXED = 3, 4
"""Kafka's numbers of pattern types."""

RESOURCE_TYPES = {
    2: "Topic",
    3: "Group",
    4: "Cluster",
    5: "TransactionalId",
    6: "DelegationToken",
    7: "User",
}
_TYPES_IN_CHANGES = {2: "TOPIC", 3: "GROUP", 4: "CLUSTER", 5: "TRANSACTIONAL_ID", 6: "DELEGATION_TOKEN", 7: "USER"}
OPERATIONS = {
    2: "All",
    3: "Read",
    4: "Write",
    5: "Create",
    6: "Delete",
    7: "Alter",
    8: "Describe",
    9: "ClusterAction",
    10: "DescribeConfigs",
    11: "AlterConfigs",
    12: "IdempotentWrite",
    13: "CreateTokens",
    14: "DescribeTokens",
}
PERMISSIONS = {2: "Deny", 3: "Allow"}

ROOTS = {LITERAL: "/kafka-acl", PREFIXED: "/kafka-acl-extended/prefixed"}
CHANGES = {LITERAL: "/kafka-acl-changes", PREFIXED: "/kafka-acl-extended-changes"}


class Pattern(NamedTuple):
    """A resource pattern. One znode has all its ACLs."""

    resource_type: int
    name: str
    pattern_type: int

    @property
    def path(self) -> str:
        return f"{ROOTS[self.pattern_type]}/{RESOURCE_TYPES[self.resource_type]}/{self.name}"

    @property
    def change_path(self) -> str:
        """The path of the sequential znodes that notify brokers of changed ACLs, without the number."""
        return f"{CHANGES[self.pattern_type]}/acl_changes_"

    def encode_change(self) -> bytes:
        kind = _TYPES_IN_CHANGES[self.resource_type]
        if self.pattern_type == LITERAL:
            return f"{kind}:{self.name}".encode()
        return encode({"version": 1, "resourceType": kind, "name": self.name, "patternType": "PREFIXED"})

    @staticmethod
    def decode_change(path: str, data: bytes) -> Pattern:
        if path.startswith(CHANGES[PREFIXED]):
            json = decode(path, data)
            if json.integer("version") > 1 or json.text("patternType") != "PREFIXED":
                raise InvalidZnodeError(path, f"unknown ACL change notification {data!r}")
            return Pattern(_number(path, _TYPES_IN_CHANGES, json.text("resourceType")), json.text("name"), PREFIXED)
        kind, separator, name = data.decode(errors="replace").partition(":")
        if not separator:
            raise InvalidZnodeError(path, f"{data!r} is not TYPE:NAME of a resource")
        return Pattern(_number(path, _TYPES_IN_CHANGES, kind), name, LITERAL)


async def stored_patterns(zk: ZooKeeper) -> list[Pattern]:
    """Return the resource patterns that have ACLs. Unknown types of resources are ignored."""
    patterns: list[Pattern] = []
    for pattern_type, root in ROOTS.items():
        for number, kind in RESOURCE_TYPES.items():
            with suppress(NoNodeError):
                names = await zk.children(f"{root}/{kind}")
                patterns += [Pattern(number, name, pattern_type) for name in names]
    return patterns


def encode_acls(entries: Iterable[AccessControlEntryRecord]) -> bytes:
    """Return the data of the znode of one pattern, version 1."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": PERMISSIONS[entry.permission_type],
            "host": entry.host,
            "operation": OPERATIONS[entry.operation],
        }
        for entry in entries
    ]
    return encode({"acls": acls, "version": 1})


def decode_acls(pattern: Pattern, data: bytes) -> list[AccessControlEntryRecord]:
    """Return the ACLs, without ids. Raises InvalidZnodeError."""
    if not data:
        return []
    json = decode(pattern.path, data)
    if json.integer("version") != 1:
        raise InvalidZnodeError(pattern.path, f"unknown version {json.integer('version')} of ACLs")
    return [_entry(pattern, acl) for acl in json.objects("acls")]


def _entry(pattern: Pattern, acl: JsonObject) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=acl.text("principal"),
        host=acl.text("host"),
        operation=_number(pattern.path, OPERATIONS, acl.text("operation")),
        permission_type=_number(pattern.path, PERMISSIONS, acl.text("permissionType")),
    )


def _number(path: str, names: dict[int, str], name: str) -> int:
    """Return the number of a name. As in Kafka, upper and lower case are the same."""
    for number, known in names.items():
        if known.upper() == name.upper():
            return number
    raise InvalidZnodeError(path, f"{name!r} is not one of {', '.join(names.values())}")
