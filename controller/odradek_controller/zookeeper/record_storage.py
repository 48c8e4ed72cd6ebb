"""Where ZooKeeper mode stores each type of metadata record, if it stores it.

Leaves the znode operations to `znode_operations`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from odradek_wire.message import Message
from odradek_wire.messages.abort_transaction_record import AbortTransactionRecord
from odradek_wire.messages.access_control_entry_record import AccessControlEntryRecord
from odradek_wire.messages.begin_transaction_record import BeginTransactionRecord
from odradek_wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek_wire.messages.clear_elr_record import ClearElrRecord
from odradek_wire.messages.client_quota_record import ClientQuotaRecord
from odradek_wire.messages.config_record import ConfigRecord
from odradek_wire.messages.delegation_token_record import DelegationTokenRecord
from odradek_wire.messages.end_transaction_record import EndTransactionRecord
from odradek_wire.messages.feature_level_record import FeatureLevelRecord
from odradek_wire.messages.fence_broker_record import FenceBrokerRecord
from odradek_wire.messages.no_op_record import NoOpRecord
from odradek_wire.messages.partition_change_record import PartitionChangeRecord
from odradek_wire.messages.partition_record import PartitionRecord
from odradek_wire.messages.producer_ids_record import ProducerIdsRecord
from odradek_wire.messages.register_broker_record import RegisterBrokerRecord
from odradek_wire.messages.register_controller_record import RegisterControllerRecord
from odradek_wire.messages.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from odradek_wire.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
from odradek_wire.messages.remove_topic_record import RemoveTopicRecord
from odradek_wire.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from odradek_wire.messages.topic_record import TopicRecord
from odradek_wire.messages.unfence_broker_record import UnfenceBrokerRecord
from odradek_wire.messages.unregister_broker_record import UnregisterBrokerRecord
from odradek_wire.messages.user_scram_credential_record import UserScramCredentialRecord
from odradek_wire.messages.zk_migration_state_record import ZkMigrationStateRecord

from ..store import UnsupportedRecordError


class RecordStorage(Enum):
    """The part of the znode tree that stores a record."""

    TOPICS = "/brokers/topics"
    """The topic's znode has the replicas; the partition's state has the leader and the ISR."""
    CONFIGS = "/config"
    """With a notification in `/config/changes`, except for the first configuration of a topic."""
    PRODUCER_IDS = "/latest_producer_id_block"
    BROKER_IDS = "/brokers/ids"
    """Each broker writes its own znode. Fencing and controlled shutdown are only in the controller's memory."""
    NOT_STORED = ""
    """Accepted, but not written: ZooKeeper mode has no metadata transactions and no eligible leader replicas."""
    REFUSED = "-"
    """Refused: Kafka's controller does not write this in ZooKeeper mode."""


RECORD_STORAGE: Mapping[type[Message], RecordStorage] = {
    TopicRecord: RecordStorage.TOPICS,
    PartitionRecord: RecordStorage.TOPICS,
    PartitionChangeRecord: RecordStorage.TOPICS,
    RemoveTopicRecord: RecordStorage.TOPICS,
    ConfigRecord: RecordStorage.CONFIGS,
    ClientQuotaRecord: RecordStorage.CONFIGS,
    UserScramCredentialRecord: RecordStorage.CONFIGS,
    RemoveUserScramCredentialRecord: RecordStorage.CONFIGS,
    ProducerIdsRecord: RecordStorage.PRODUCER_IDS,
    RegisterBrokerRecord: RecordStorage.BROKER_IDS,
    UnregisterBrokerRecord: RecordStorage.BROKER_IDS,
    FenceBrokerRecord: RecordStorage.BROKER_IDS,
    UnfenceBrokerRecord: RecordStorage.BROKER_IDS,
    BrokerRegistrationChangeRecord: RecordStorage.BROKER_IDS,
    ClearElrRecord: RecordStorage.NOT_STORED,
    NoOpRecord: RecordStorage.NOT_STORED,
    BeginTransactionRecord: RecordStorage.NOT_STORED,
    EndTransactionRecord: RecordStorage.NOT_STORED,
    AbortTransactionRecord: RecordStorage.NOT_STORED,
    AccessControlEntryRecord: RecordStorage.REFUSED,
    RemoveAccessControlEntryRecord: RecordStorage.REFUSED,
    DelegationTokenRecord: RecordStorage.REFUSED,
    RemoveDelegationTokenRecord: RecordStorage.REFUSED,
    FeatureLevelRecord: RecordStorage.REFUSED,
    RegisterControllerRecord: RecordStorage.REFUSED,
    ZkMigrationStateRecord: RecordStorage.REFUSED,
}


def check_storable(records: Sequence[Message]) -> None:
    """Raise UnsupportedRecordError for the first record that ZooKeeper cannot store."""
    for record in records:
        if RECORD_STORAGE[type(record)] is RecordStorage.REFUSED:
            raise UnsupportedRecordError(f"{type(record).__name__} cannot be stored in ZooKeeper")
