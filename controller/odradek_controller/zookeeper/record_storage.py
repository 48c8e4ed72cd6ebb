"""Where each metadata record has its place in ZooKeeper, or that it has none."""

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

from ..store import RefusedRecordError


class Place(Enum):
    TOPICS = "/brokers/topics"
    """A topic's node says who holds its partitions; a partition's state who leads it and who is in sync."""
    CONFIGS = "/config"
    """With a notification in `/config/changes`, but for the configuration that a topic begins with."""
    PRODUCER_IDS = "/latest_producer_id_block"
    BROKER_IDS = "/brokers/ids"
    """Brokers keep their own nodes there. What the controller thinks of them is in its memory only."""
    NOWHERE = ""
    """Nothing would be in it that ZooKeeper mode knows: marks of transactions, eligible leaders."""
    REFUSED = "-"
    """Kafka's controller does not write this in ZooKeeper mode: a broker does, or nobody."""


PLACES: Mapping[type[Message], Place] = {
    TopicRecord: Place.TOPICS,
    PartitionRecord: Place.TOPICS,
    PartitionChangeRecord: Place.TOPICS,
    RemoveTopicRecord: Place.TOPICS,
    ConfigRecord: Place.CONFIGS,
    ClientQuotaRecord: Place.CONFIGS,
    UserScramCredentialRecord: Place.CONFIGS,
    RemoveUserScramCredentialRecord: Place.CONFIGS,
    ProducerIdsRecord: Place.PRODUCER_IDS,
    RegisterBrokerRecord: Place.BROKER_IDS,
    UnregisterBrokerRecord: Place.BROKER_IDS,
    FenceBrokerRecord: Place.BROKER_IDS,
    UnfenceBrokerRecord: Place.BROKER_IDS,
    BrokerRegistrationChangeRecord: Place.BROKER_IDS,
    ClearElrRecord: Place.NOWHERE,
    NoOpRecord: Place.NOWHERE,
    BeginTransactionRecord: Place.NOWHERE,
    EndTransactionRecord: Place.NOWHERE,
    AbortTransactionRecord: Place.NOWHERE,
    AccessControlEntryRecord: Place.REFUSED,
    RemoveAccessControlEntryRecord: Place.REFUSED,
    DelegationTokenRecord: Place.REFUSED,
    RemoveDelegationTokenRecord: Place.REFUSED,
    FeatureLevelRecord: Place.REFUSED,
    RegisterControllerRecord: Place.REFUSED,
    ZkMigrationStateRecord: Place.REFUSED,
}


def check_places(records: Sequence[Message]) -> None:
    """Raises RefusedRecordError."""
    for record in records:
        if PLACES[type(record)] is Place.REFUSED:
            raise RefusedRecordError(f"{type(record).__name__} cannot be kept in ZooKeeper")
