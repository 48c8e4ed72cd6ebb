"""The transaction coordinator, transaction markers and verification.

Markers have three modules: `transaction_marker_channel_manager` chooses the leader that gets a marker and retries,
`marker_channel` sends the markers for one broker, and `marker_writing` is the append on the leader. Verification has
two: `transaction_verification` takes a guard from each partition, `add_partitions_to_txn_manager` sends the request to
the coordinator.
"""
