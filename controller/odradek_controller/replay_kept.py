"""Records that are kept and passed on though nothing acts on them yet: ACLs, credentials, tokens, quotas, migration.

Owns how each of them changes what is kept; `replay` applies them.
"""

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

from .image import Kept, QuotaEntity


def _client_quota(kept: Kept, record: ClientQuotaRecord) -> Kept:
    parts = sorted((part.entity_type, part.entity_name) for part in record.entity)
    entity = QuotaEntity(tuple(parts))
    quotas = dict(kept.client_quotas)
    limits = dict(quotas.get(entity, {}))
    if record.remove:
        limits.pop(record.key, None)
    else:
        limits[record.key] = record.value
    quotas[entity] = limits
    return replace(kept, client_quotas={key: value for key, value in quotas.items() if value})


def _acl(kept: Kept, record: AccessControlEntryRecord) -> Kept:
    return replace(kept, acls={**kept.acls, record.id: record})


def _remove_acl(kept: Kept, record: RemoveAccessControlEntryRecord) -> Kept:
    acls = {key: value for key, value in kept.acls.items() if key != record.id}
    return replace(kept, acls=acls)


def _scram(kept: Kept, record: UserScramCredentialRecord) -> Kept:
    credentials = {**kept.scram_credentials, (record.name, record.mechanism): record}
    return replace(kept, scram_credentials=credentials)


def _remove_scram(kept: Kept, record: RemoveUserScramCredentialRecord) -> Kept:
    credentials = dict(kept.scram_credentials)
    credentials.pop((record.name, record.mechanism), None)
    return replace(kept, scram_credentials=credentials)


def _token(kept: Kept, record: DelegationTokenRecord) -> Kept:
    tokens = {**kept.delegation_tokens, record.token_id: record}
    return replace(kept, delegation_tokens=tokens)


def _remove_token(kept: Kept, record: RemoveDelegationTokenRecord) -> Kept:
    tokens = {key: value for key, value in kept.delegation_tokens.items() if key != record.token_id}
    return replace(kept, delegation_tokens=tokens)


def _zk_migration_state(kept: Kept, record: ZkMigrationStateRecord) -> Kept:
    return replace(kept, zk_migration_state=record.zk_migration_state)


KEEP: Mapping[type[Message], Callable[..., Kept]] = {
    DelegationTokenRecord: _token,
    UserScramCredentialRecord: _scram,
    ClientQuotaRecord: _client_quota,
    AccessControlEntryRecord: _acl,
    RemoveAccessControlEntryRecord: _remove_acl,
    ZkMigrationStateRecord: _zk_migration_state,
    RemoveUserScramCredentialRecord: _remove_scram,
    RemoveDelegationTokenRecord: _remove_token,
}
"""Record type to what is kept after it."""
