"""The client of a transactional id on both brokers: the requests of producers, brokers and administrators.

Owns the client's state (producer id, epoch and sequences), the wait until Kafka has written the markers after its
response to EndTxn, and the comparison of everything that is visible of a transaction. Every response is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from compat_tests.oracle.batches import batch, summary
from compat_tests.oracle.pair import Pair, until_coordinated
from compat_tests.oracle.peer import Peer, Var
from compat_tests.oracle.request_bodies import fetch_body, produce_body
from compat_tests.oracle.schema import Body

PARTITIONS = 3
CONCURRENT_TRANSACTIONS = 51
ONGOING = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
FEATURE, NEWEST_LEVEL, SAFE_DOWNGRADE = "transaction.version", 2, 2


class Producer(NamedTuple):
    """`id` is a number that the test chose, or a variable for an id that each broker has generated."""

    id: Any
    epoch: int

    def at(self, epochs: int) -> Producer:
        """Return the producer with a later epoch, or an earlier one."""
        return self._replace(epoch=self.epoch + epochs)


NO_PRODUCER = Producer(-1, -1)
TopicPartitions = Sequence[tuple[str, Sequence[int]]]


class TransactionalClient:
    """The client of one transactional id, with a topic and a group of the same name."""

    def __init__(self, pair: Pair, name: str) -> None:
        self.pair = pair
        self.id = name
        self.topic = name
        self.producer = NO_PRODUCER
        self._sequences: dict[tuple[str, int, int], int] = {}
        until_transactions_are_coordinated(pair, name)
        until_coordinated(pair, name)
        self.topic_id = pair.create_topic(name, PARTITIONS)

    # -- producers ------------------------------------------------------------------------------------------------

    def init(
        self, version: int = 5, expected: Producer = NO_PRODUCER, *, timeout_ms: int = 60_000, name: str | None = ""
    ) -> int:
        """Send InitProducerId and use its producer id and epoch from now on. Return the error."""
        body: Body = {
            "transactional_id": self.id if name == "" else name,
            "transaction_timeout_ms": timeout_ms,
            "producer_id": expected.id,
            "producer_epoch": expected.epoch,
        }
        response = self.pair.ask("InitProducerId", version, body, learn=_learn)
        if not response["error_code"]:
            self.producer = self._producer_in(response)
        self.wait_for_state()
        return int(response["error_code"])

    def begin(self, version: int = 5) -> None:
        """Send InitProducerId until no transaction is pending."""
        while self.init(version) == CONCURRENT_TRANSACTIONS:
            pass

    def add(self, *partitions: int, version: int = 3, by: Producer | None = None, topics: TopicPartitions = ()) -> None:
        """Send AddPartitionsToTxn as a client."""
        producer = by or self.producer
        body = {
            "v3_and_below_transactional_id": self.id,
            "v3_and_below_producer_id": producer.id,
            "v3_and_below_producer_epoch": producer.epoch,
            "v3_and_below_topics": self._topics(partitions, topics),
        }
        self.pair.ask("AddPartitionsToTxn", version, body)

    def transaction(
        self,
        *partitions: int,
        version: int = 5,
        by: Producer | None = None,
        topics: TopicPartitions = (),
        verify: bool = False,
        name: str = "",
    ) -> Body:
        """Return one transaction of a broker's AddPartitionsToTxn."""
        producer = by or self.producer
        return {
            "transactional_id": name or self.id,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "verify_only": verify,
            "topics": self._topics(partitions, topics),
        }

    def ask_as_broker(self, *transactions: Body, version: int = 5) -> None:
        self.pair.ask("AddPartitionsToTxn", version, {"transactions": list(transactions)})

    def add_offsets(self, *, version: int = 3, by: Producer | None = None, group: str | None = None) -> None:
        producer = by or self.producer
        body = {"transactional_id": self.id, "producer_id": producer.id, "producer_epoch": producer.epoch}
        self.pair.ask("AddOffsetsToTxn", version, {**body, "group_id": self.id if group is None else group})

    def commit_offsets(self, offset: int, *, version: int = 5, by: Producer | None = None, **more: Any) -> int:
        """Send TxnOffsetCommit for the topic's first partition. Return the error."""
        producer = by or self.producer
        partition: Body = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
        body = {
            "transactional_id": self.id,
            "group_id": self.id,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "topics": [{"name": self.topic, "partitions": [partition]}],
            **more,
        }
        response = self.pair.ask("TxnOffsetCommit", version, body)
        return int(response["topics"][0]["partitions"][0]["error_code"])

    def produce(
        self,
        partition: int = 0,
        *,
        version: int = 12,
        by: Producer | None = None,
        sequence: int | None = None,
        transactional: bool = True,
        name: str | None = "",
    ) -> int:
        """Send the producer's next record, with each broker's own producer id. Return the error."""
        producer = by or self.producer
        at = (
            self._sequences.get((_name_of(producer.id), producer.epoch, partition), 0) if sequence is None else sequence
        )

        records = self.records(producer, at, transactional=transactional)
        transactional_id = (self.id if transactional else None) if name == "" else name
        (error,) = self.send((partition, records), version=version, name=transactional_id)
        if not error:
            self.set_sequence(partition, at, producer)
        return error

    def set_sequence(self, partition: int, sequence: int, by: Producer | None = None) -> None:
        """Set the sequence of the producer's last record in the partition."""
        producer = by or self.producer
        self._sequences[_name_of(producer.id), producer.epoch, partition] = sequence + 1

    def records(self, by: Producer, sequence: int, *, transactional: bool = True) -> Callable[[Peer], bytes]:
        """Return a batch of one record, with each broker's own producer id."""

        def records_for(peer: Peer) -> bytes:
            id_ = peer.known[by.id.name] if isinstance(by.id, Var) else by.id
            return batch([b"v"], producer=(id_, by.epoch, sequence), transactional=transactional)

        return records_for

    def send(self, *parts: tuple[int, object], version: int, name: str | None, acks: int = -1) -> list[int]:
        """Send Produce to these partitions. Return their errors, in order."""
        body = produce_body(version, self.topic, self.topic_id, *parts, acks=acks)
        response = self.pair.ask("Produce", version, {**body, "transactional_id": name})
        return [each["error_code"] for each in response["responses"][0]["partition_responses"]]

    def end(self, commit: bool, *, version: int = 5, by: Producer | None = None, name: str = "") -> int:
        """Send EndTxn; from version 5 on, use the producer id and epoch of the response. Return the error."""
        producer = by or self.producer
        body = {
            "transactional_id": name or self.id,
            "producer_id": producer.id,
            "producer_epoch": producer.epoch,
            "committed": commit,
        }
        response = self.pair.ask("EndTxn", version, body, learn=_learn)
        if not response["error_code"] and version >= 5:
            self.producer = self._producer_in(response)
        self.wait_for_state()
        return int(response["error_code"])

    # -- observations ---------------------------------------------------------------------------------------------

    def wait_for_state(self, *, until: Callable[[str], bool] = lambda state: state not in ONGOING) -> None:
        """Wait until both brokers report a state that `until` accepts, by default any state without pending markers."""
        for peer in (self.pair.kafka, self.pair.ours):
            while True:
                response = peer.ask("DescribeTransactions", 0, {"transactional_ids": [self.id]})
                if until(response["transaction_states"][0]["transaction_state"]):
                    break

    def describe(self) -> Body:
        response = self.pair.ask("DescribeTransactions", 0, {"transactional_ids": [self.id]}, sorted_partitions)
        state: Body = response["transaction_states"][0]
        return state

    def compare(self) -> None:
        """Compare everything that is visible of the transaction, in the coordinator and in its partitions."""
        self.describe()
        self.pair.ask("ListTransactions", 2, {"transactional_id_pattern": self.id})
        indexes = list(range(PARTITIONS))
        self.pair.ask(
            "DescribeProducers", 0, {"topics": [{"name": self.topic, "partition_indexes": indexes}]}, _by_producer
        )
        parts: list[Body] = [{"partition": index} for index in indexes]
        for isolation in (0, 1):
            wanted: list[Body] = [{"partition_index": index, "timestamp": -1} for index in indexes]
            topic = {"name": self.topic, "partitions": wanted}
            self.pair.ask("ListOffsets", 7, {"replica_id": -1, "isolation_level": isolation, "topics": [topic]})
            asked = fetch_body(12, self.topic, None, *parts, isolation_level=isolation)
            self.pair.ask("Fetch", 12, asked, self._fetched)
        for stable in (False, True):
            group = {"group_id": self.id, "topics": [{"name": self.topic, "partition_indexes": [0]}]}
            self.pair.ask("OffsetFetch", 8, {"groups": [group], "require_stable": stable})

    def _fetched(self, response: Body) -> Body:
        """Drop CRC and producer id of the batches: each broker has its own producer ids."""
        for topic in summary(response)["responses"]:
            for partition in topic["partitions"]:
                partition["records"] = [(*each[:4], *each[5:7]) for each in partition["records"]]
        return response

    def _topics(self, partitions: Sequence[int], topics: TopicPartitions) -> list[Body]:
        own = [(self.topic, partitions)] if partitions else []
        return [{"name": topic, "partitions": list(indexes)} for topic, indexes in (*own, *topics)]

    def _producer_in(self, response: Body) -> Producer:
        name = str(response["producer_id"]).strip("<>")
        return Producer(Var(name), response["producer_epoch"])


def until_transactions_are_coordinated(pair: Pair, transactional_id: str) -> None:
    """Repeat requests until the coordinator has loaded (the first request creates __transaction_state), and until there
    are producer ids: Kafka's broker requests its first ones from the controller when a client needs one."""
    for peer in (pair.kafka, pair.ours):
        while peer.ask("InitProducerId", 1, {"transactional_id": None, "transaction_timeout_ms": 1})["error_code"] != 0:
            pass
        while peer.ask("FindCoordinator", 3, {"key": transactional_id, "key_type": 1})["error_code"] != 0:
            pass
        while True:
            response = peer.ask("DescribeTransactions", 0, {"transactional_ids": [transactional_id]})
            if response["transaction_states"][0]["error_code"] in (0, 105):
                break


def finalize(peers: Sequence[Peer], level: int) -> None:
    """Set transaction.version, and wait until the brokers list it in ApiVersions."""
    for peer in peers:
        if _finalized(peer) == level:
            continue
        downgrade = _finalized(peer) > level
        update = {"feature": FEATURE, "max_version_level": level, "upgrade_type": SAFE_DOWNGRADE if downgrade else 1}
        response = peer.ask("UpdateFeatures", 1, {"timeout_ms": 20_000, "feature_updates": [update]})
        assert not any(each["error_code"] for each in (response, *response["results"])), response
        while _finalized(peer) != level:
            pass


def _finalized(peer: Peer) -> int:
    response = peer.ask("ApiVersions", 3, {"client_software_name": "oracle", "client_software_version": "1"})
    levels = {each["name"]: each["max_version_level"] for each in response["finalized_features"]}
    return int(levels.get(FEATURE, 0))


def verify_partitions(peers: Sequence[Peer], enabled: bool) -> None:
    """Set whether a partition verifies with the coordinator that it belongs to a transaction."""
    name, value = "transaction.partition.verification.enable", str(enabled).lower()
    setting = {"name": name, "config_operation": 0, "value": value}
    resource = {"resource_type": 4, "resource_name": "", "configs": [setting]}
    for peer in peers:
        response = peer.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})
        assert response["responses"][0]["error_code"] == 0, response
        value_set = None
        asked = {"resource_type": 4, "resource_name": "1", "configuration_keys": [name]}
        while value_set != value:
            (found,) = peer.ask("DescribeConfigs", 4, {"resources": [asked]})["results"]
            value_set = found["configs"][0]["value"]


def _learn(peer: Peer, response: Body) -> None:
    with suppress(KeyError):
        peer.remember_producer(response["producer_id"])


def _name_of(producer_id: Any) -> str:
    return producer_id.name if isinstance(producer_id, Var) else str(producer_id)


def sorted_partitions(response: Body) -> Body:
    """Sort partitions: Kafka's order is that of a hash map."""
    for state in response["transaction_states"]:
        for topic in state["topics"]:
            topic["partitions"].sort()
    return response


def _by_producer(response: Body) -> Body:
    for topic in response["topics"]:
        for partition in topic["partitions"]:
            partition["active_producers"].sort(key=lambda each: int(each["producer_epoch"]))
    return response
