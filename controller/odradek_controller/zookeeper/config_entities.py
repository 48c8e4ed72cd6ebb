"""Quotas of clients, users and addresses, and SCRAM credentials of users, as Kafka's tools write them to `/config`.

Owns the paths of the entities and the formats of their values. The znode of a user has both quotas and credentials.
Leaves the data of the znode to `znodes`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterator, Mapping

from odradek_wire.messages.user_scram_credential_record import UserScramCredentialRecord

from ..image import QuotaEntity
from .json_text import InvalidZnodeError
from .paths import DEFAULT_ENTITY, config, desanitized, sanitized

_FOLDERS = {"user": "users", "client-id": "clients", "ip": "ips"}
"""Entity type to the znode that has the entities of this type."""
_TYPES = {folder: kind for kind, folder in _FOLDERS.items()}
_INTEGER_QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "connection_creation_rate")
_DECIMAL_QUOTAS = ("request_percentage", "controller_mutation_rate")

MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
"""The SCRAM mechanisms by Kafka's numbers."""


def entity_path(entity: QuotaEntity) -> str:
    """Return the entity path, such as `users/u/clients/<default>`, with the user before the client."""
    parts = sorted(entity.parts, key=lambda part: part[0] != "user")
    return "/".join(f"{_FOLDERS[kind]}/{DEFAULT_ENTITY if name is None else sanitized(name)}" for kind, name in parts)


def user_path(name: str) -> str:
    return f"users/{sanitized(name)}"


def quota_entity(path: str) -> QuotaEntity:
    """Return the entity of a path; the inverse of `entity_path`."""
    names = path.split("/")
    return QuotaEntity(
        tuple(
            sorted(
                (_TYPES[folder], None if name == DEFAULT_ENTITY else desanitized(name))
                for folder, name in zip(names[::2], names[1::2], strict=True)
            )
        )
    )


def is_quota_entity(path: str) -> bool:
    """Return whether an entity path is that of a user, a client, a client of a user, or an address."""
    names = path.split("/")
    folders = tuple(names[::2])
    return len(names) % 2 == 0 and folders in (("users",), ("clients",), ("ips",), ("users", "clients"))


def quota_text(key: str, value: float) -> str:
    return str(int(value)) if key in _INTEGER_QUOTAS else repr(value)


def quotas(path: str, values: Mapping[str, str]) -> dict[str, float]:
    """Return the quotas among the values of an entity. Raises InvalidZnodeError."""
    try:
        return {key: float(values[key]) for key in (*_INTEGER_QUOTAS, *_DECIMAL_QUOTAS) if key in values}
    except ValueError as error:
        raise InvalidZnodeError(config(path), f"a quota must be a number: {error}") from None


def credential_text(record: UserScramCredentialRecord) -> str:
    salt, stored, server = (b64encode(part).decode() for part in (record.salt, record.stored_key, record.server_key))
    return f"salt={salt},stored_key={stored},server_key={server},iterations={record.iterations}"


def credentials(path: str, values: Mapping[str, str]) -> Iterator[UserScramCredentialRecord]:
    """Return the credentials among the values of a user. Raises InvalidZnodeError."""
    for number, mechanism in MECHANISMS.items():
        text = values.get(mechanism)
        if text is None:
            continue
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            salt, stored, server = (
                b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            iterations = int(parts["iterations"])
        except (KeyError, ValueError, Base64Error):
            raise InvalidZnodeError(
                config(path), f"{mechanism} must be salt=…,stored_key=…,server_key=…,iterations=…"
            ) from None
        name = desanitized(path.split("/")[1])
        yield UserScramCredentialRecord(name, number, salt, stored, server, iterations)
