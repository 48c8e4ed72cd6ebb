"""Replay of the records of `SecurityImage`: ACLs, credentials, tokens, quotas and the ZooKeeper migration state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from odradek_wire.message import Message
from odradek_wire.messages.access_control_entry_record import AccessControlEntryRecord
from odradek_wire.messages.client_quota_record import ClientQuotaRecord
from odradek_wire.messages.delegation_token_record import DelegationTokenRecord
from odradek_wire.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from odradek_wire.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
from odradek_wire.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from odradek_wire.messages.user_scram_credential_record import UserScramCredentialRecord
from odradek_wire.messages.zk_migration_state_record import ZkMigrationStateRecord

from .image import QuotaEntity, SecurityImage


def _client_quota(image: SecurityImage, record: ClientQuotaRecord) -> SecurityImage:
    parts = sorted((part.entity_type, part.entity_name) for part in record.entity)
    entity = QuotaEntity(tuple(parts))
    quotas = dict(image.client_quotas)
    limits = dict(quotas.get(entity, {}))
    if record.remove:
        limits.pop(record.key, None)
    else:
        limits[record.key] = record.value
    quotas[entity] = limits
    return replace(image, client_quotas={key: value for key, value in quotas.items() if value})


def _acl(image: SecurityImage, record: AccessControlEntryRecord) -> SecurityImage:
    return replace(image, acls={**image.acls, record.id: record})


def _remove_acl(image: SecurityImage, record: RemoveAccessControlEntryRecord) -> SecurityImage:
    acls = {key: value for key, value in image.acls.items() if key != record.id}
    return replace(image, acls=acls)


def _scram(image: SecurityImage, record: UserScramCredentialRecord) -> SecurityImage:
    credentials = {**image.scram_credentials, (record.name, record.mechanism): record}
    return replace(image, scram_credentials=credentials)


def _remove_scram(image: SecurityImage, record: RemoveUserScramCredentialRecord) -> SecurityImage:
    credentials = dict(image.scram_credentials)
    credentials.pop((record.name, record.mechanism), None)
    return replace(image, scram_credentials=credentials)


def _token(image: SecurityImage, record: DelegationTokenRecord) -> SecurityImage:
    tokens = {**image.delegation_tokens, record.token_id: record}
    return replace(image, delegation_tokens=tokens)


def _remove_token(image: SecurityImage, record: RemoveDelegationTokenRecord) -> SecurityImage:
    tokens = {key: value for key, value in image.delegation_tokens.items() if key != record.token_id}
    return replace(image, delegation_tokens=tokens)


def _zk_migration_state(image: SecurityImage, record: ZkMigrationStateRecord) -> SecurityImage:
    return replace(image, zk_migration_state=record.zk_migration_state)


SECURITY_RECORDS: Mapping[type[Message], Callable[..., SecurityImage]] = {
    DelegationTokenRecord: _token,
    UserScramCredentialRecord: _scram,
    ClientQuotaRecord: _client_quota,
    AccessControlEntryRecord: _acl,
    RemoveAccessControlEntryRecord: _remove_acl,
    ZkMigrationStateRecord: _zk_migration_state,
    RemoveUserScramCredentialRecord: _remove_scram,
    RemoveDelegationTokenRecord: _remove_token,
}
"""Record type to the function that returns the image after such a record."""
