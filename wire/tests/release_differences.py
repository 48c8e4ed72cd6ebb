"""The contradictions between Kafka 3.9.1 and 4.3.0, and the definitions that the codec has for them.

Elsewhere one definition is valid for both releases: a release only adds or drops versions. In general 4.3 wins.
Names are Kafka's; versions are 3.9.1's.
"""

OTHER_LAYOUT = {
    # Both were unstable in 3.9 and got one more field without a new version. A definition of its own decodes 3.9's
    # layout; it is never served.
    ("ReadShareGroupStateSummaryResponse", 0): "ReadShareGroupStateSummaryResponse39",
    ("ShareGroupMetadataValue", 0): "ShareGroupMetadataValue39",
}
"""(Message, version) of 3.9.1 whose bytes differ in 4.3.0, and the definition that reads them."""

KEY_TYPES = {
    # The key of a coordinator record begins with an int16: in 3.9 the version of the message, in 4.3 its type, followed
    # by version 0. The bytes are the same, our definitions are 4.3's.
    ("OffsetCommitKey", 0): "LegacyOffsetCommitKey",
    ("OffsetCommitKey", 1): "OffsetCommitKey",
    ("GroupMetadataKey", 2): "GroupMetadataKey",
    ("ConsumerGroupMetadataKey", 3): "ConsumerGroupMetadataKey",
    ("ConsumerGroupPartitionMetadataKey", 4): "ConsumerGroupPartitionMetadataKey",
    ("ConsumerGroupMemberMetadataKey", 5): "ConsumerGroupMemberMetadataKey",
    ("ConsumerGroupTargetAssignmentMetadataKey", 6): "ConsumerGroupTargetAssignmentMetadataKey",
    ("ConsumerGroupTargetAssignmentMemberKey", 7): "ConsumerGroupTargetAssignmentMemberKey",
    ("ConsumerGroupCurrentMemberAssignmentKey", 8): "ConsumerGroupCurrentMemberAssignmentKey",
    ("ShareGroupPartitionMetadataKey", 9): "ShareGroupPartitionMetadataKey",
    ("ShareGroupMemberMetadataKey", 10): "ShareGroupMemberMetadataKey",
    ("ShareGroupMetadataKey", 11): "ShareGroupMetadataKey",
    ("TransactionLogKey", 0): "TransactionLogKey",
}
"""(Message, version) of 3.9.1 for a coordinator key, and the definition whose version 0 it is."""

RENAMED_MESSAGES = {
    # Key 74 was about client metrics only (KIP-1000) and became general (KIP-1142); v0 has the same bytes.
    "ListClientMetricsResourcesRequest": "ListConfigResourcesRequest",
    "ListClientMetricsResourcesResponse": "ListConfigResourcesResponse",
}
"""Name in 3.9.1 and in 4.3.0."""

RENAMED_FIELDS = {
    # Pre-vote (KIP-996) made candidates of replicas.
    ("VoteRequest", "CandidateEpoch"): "ReplicaEpoch",
    ("VoteRequest", "CandidateId"): "ReplicaId",
    ("VoteRequest", "CandidateDirectoryId"): "ReplicaDirectoryId",
    ("ListConfigResourcesResponse", "ClientMetricsResources"): "ConfigResources",
    ("ListConfigResourcesResponse", "Name"): "ResourceName",
}
"""(Message by its name in 4.3.0, field in 3.9.1), and the field in 4.3.0."""

RENAMED_STRUCTS = {
    ("ListConfigResourcesResponse", "ClientMetricsResource"): "ConfigResource",
}
"""(Message by its name in 4.3.0, struct in 3.9.1), and the struct in 4.3.0."""

TAGS_WITHOUT_NEW_VERSION = {
    # 4.x added these tagged fields to versions that 3.9 has: 3.9 keeps them as unknown tags.
    ("ConsumerGroupCurrentMemberAssignmentValue", "AssignmentEpochs"),
    ("ConsumerGroupMetadataValue", "MetadataHash"),
    ("ConsumerGroupTargetAssignmentMetadataValue", "AssignmentTimestamp"),
    ("OffsetCommitValue", "topicId"),
    ("TransactionLogValue", "PreviousProducerId"),
    ("TransactionLogValue", "NextProducerId"),
    ("TransactionLogValue", "NextProducerEpoch"),
    ("TransactionLogValue", "ClientTransactionVersion"),
}
"""(Message, field) of 4.3.0."""

IGNORABLE_IN_4_3 = {
    # They no longer exist in the newest version, so 4.3 must be able to leave them out.
    ("ProduceRequest", "Name"),
    ("ProduceResponse", "Name"),
    ("OffsetCommitRequest", "Name"),
    ("OffsetCommitResponse", "Name"),
    ("OffsetFetchRequest", "Name"),
    ("OffsetFetchResponse", "Name"),
    ("UpdateFeaturesResponse", "Results"),
}
"""(Message, field) that 3.9.1 refuses, and 4.3.0 drops, where a version lacks it."""

IGNORABLE_IN_3_9 = {
    # Exists in all versions of 4.3; v0 of the header, which lacks it, is 3.9's.
    ("RequestHeader", "ClientId"),
}
"""(Message, field) that 3.9.1 drops where a version lacks it, and for which 4.3.0 has no such version."""

IGNORABLE_IN_3_9_WITHOUT_EFFECT = {
    # Present in every version: nothing to ignore.
    ("ShareAcknowledgeResponse", "ThrottleTimeMs"),
    ("ShareAcknowledgeResponse", "ErrorCode"),
    ("ShareAcknowledgeResponse", "TopicId"),
    ("ShareFetchRequest", "MaxBytes"),
    ("ShareFetchRequest", "TopicId"),
    ("ShareFetchResponse", "ThrottleTimeMs"),
    ("ShareFetchResponse", "ErrorCode"),
    ("ShareFetchResponse", "TopicId"),
}
"""(Message, field) that 3.9.1 calls ignorable and 4.3.0 does not."""
