"""The work of clients with all owners of a data directory, and the check that all of it is stored.

Owns the record of the work: everything that a broker acknowledged, as the client received it, for the comparison.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)

from compat_tests.moves.site import WAIT_S, Site
from compat_tests.oracle.batches import batch
from compat_tests.oracle.peer import Peer

_RENAMED_DIRECTORY = re.compile(r".*\.[0-9a-f]{32}-(stray|delete|future)")
_GROUP = "readers"
_TRANSACTIONAL_ID = "t"
_OPEN_TRANSACTIONAL_ID = "left-open"
_OUT_OF_ORDER = 45
_TOPIC, _BROKER = 2, 4
_OWN_SOURCES = (ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.DYNAMIC_BROKER_CONFIG)
_DEFAULT_SOURCES = (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,)


class Read(NamedTuple):
    """A record as a consumer receives it."""

    offset: int
    timestamp: tuple[int, int]
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass
class Topic:
    """The topic's expected state after all requests."""

    partitions: int
    config: dict[str, str] = field(default_factory=dict)
    id: str = ""


class History:
    """`write` sends requests to an owner, `check` compares what the next owner has stored."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._topics: dict[str, Topic] = {}
        self._records: dict[tuple[str, int], list[Read]] = defaultdict(list)
        self._epochs: dict[tuple[str, int, int], int | None] = {}
        self._starts: dict[tuple[str, int], int] = {}
        self._committed: dict[tuple[str, int], tuple[int, str]] = {}
        self._directories: dict[str, Path] = {}
        self._refused: list[KafkaError] = []
        self._sequence = 0
        self._raw_producer: tuple[int, int] | None = None
        self._raw_end = 0
        self._transactional_producer: int | None = None
        self._in_committed_transactions: list[int] = []
        self._rounds = 0
        self._common: dict[str, str | int | float | bool] = {
            "bootstrap.servers": site.bootstrap_servers,
            "log_level": 0,
            "reconnect.backoff.max.ms": 500,
            # librdkafka's rebootstrap may meet a broker that knows no brokers yet (over ZooKeeper, before the first
            # metadata update), and then requests no metadata for minutes.
            "metadata.recovery.strategy": "none",
        }
        self._survivor = self._producer(**{"enable.idempotence": True, "message.timeout.ms": int(2 * WAIT_S * 1000)})
        """An idempotent producer that works with all owners."""

        self._admin: AdminClient
        self._worker: Producer

    def connect(self) -> None:
        """Connect new clients to the owner. Older clients must not send group requests: after a rebootstrap librdkafka
        still sends them to the former coordinator."""
        self._admin = AdminClient(self._common)
        self._worker = self._producer(**{"enable.idempotence": True, "compression.type": "lz4", "linger.ms": 5})

    def _producer(self, **settings: object) -> Producer:
        return Producer({**self._common, **settings})

    # -- writing ------------------------------------------------------------------------------------------------------

    def create_topics(self) -> None:
        """Create the topics with the first owner."""
        self._create("plain", 3, {"retention.ms": "86400000"})
        self._create("grown", 1, {"segment.bytes": "1048576", "retention.bytes": "104857600"})
        self._create("packed", 2, {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"})
        cleaned = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.bytes": "1048576"}
        self._create("compact", 1, cleaned)
        self._create("trimmed", 1, {"cleanup.policy": "compact,delete", "max.message.bytes": "2000000"})
        self._create("survivor", 1)
        self._create("raw", 1, {"retention.ms": "-1"})
        self._create("transactions", 1)
        self._create("never-written", 2)
        # Without settings: at its next start Kafka 4.3.0 reads all metadata in one batch and gives the settings of the
        # deleted topic to the new topic of the same name.
        self._create("again", 2)
        self._set(_BROKER, "", {"message.max.bytes": "2000000"})
        self._set(_BROKER, "1", {"log.cleaner.threads": "2"})

    def write(self) -> None:
        """Send every kind of request to the current owner."""
        self._rounds += 1
        round_ = self._rounds
        self._create(f"made-{round_}", 2, {"retention.ms": str(3_600_000 * round_)})
        self._topics["grown"].partitions += 1
        self._done(self._admin.create_partitions([NewPartitions("grown", self._topics["grown"].partitions)]))
        self._until_led()
        self._topics["plain"].config["retention.ms"] = value = str(86_400_000 + round_)
        self._set(_TOPIC, "plain", {"retention.ms": value})
        for name, topic in self._topics.items():
            if name not in ("compact", "survivor", "raw", "transactions", "never-written"):
                self._produce(name, [(p, f"{round_}-{n}", 100) for n in range(100) for p in range(topic.partitions)])
        self._produce("compact", [(0, str(n % 100), 1000) for n in range(2400)])
        self.queue_for_survivor()
        assert self._survivor.flush(WAIT_S) == 0
        self._produce_raw()
        self._trim()
        self._read_as_group()
        self._transact()
        self._delete(f"made-{round_ - 1}")
        self._delete("again")
        self._create("again", 1)
        self._produce("again", [(0, f"{round_}", 100)])
        directories = self._site.directories()
        self._directories = {name: path for name, path in directories.items() if not _RENAMED_DIRECTORY.match(name)}

    def queue_for_survivor(self) -> None:
        """Queue records in the surviving producer, which sends them when a broker is running."""
        self._send(self._survivor, "survivor", [(0, None, 50)] * 100)

    def _create(self, name: str, partitions: int, config: dict[str, str] | None = None) -> None:
        new = NewTopic(name, partitions, 1, config=dict(config or {}))

        def created() -> bool:
            try:
                self._done(self._admin.create_topics([new], operation_timeout=WAIT_S))
            except KafkaException as refusal:
                # Over ZooKeeper a topic keeps its name until its deletion is complete, although Metadata omits it.
                error: KafkaError = refusal.args[0]
                if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        _until(created)
        self._topics[name] = Topic(partitions, dict(config or {}))
        self._until_led()
        self._topics[name].id = self._ids()[name]

    def _delete(self, name: str) -> None:
        """Delete a topic; its directories may still wait for their removal when the owner ends."""
        if self._topics.pop(name, None) is None:
            return
        self._done(self._admin.delete_topics([name], operation_timeout=WAIT_S))
        _until(lambda: name not in self._admin.list_topics(timeout=WAIT_S).topics)
        # Kafka's controller forgets the topic before its broker does.
        _until(lambda: not any(_names(each, name) for each in self._site.directories()))
        for kept in (self._records, self._starts, self._committed):
            for key in [key for key in kept if key[0] == name]:
                kept.pop(key)
        self._epochs = {key: epoch for key, epoch in self._epochs.items() if key[0] != name}

    def _set(self, kind: int, name: str, values: dict[str, str]) -> None:
        """Set dynamic settings by a raw request, because librdkafka cannot name the default of all brokers."""
        configs = [{"name": key, "config_operation": 0, "value": value} for key, value in values.items()]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        peer = Peer("the owner", self._site.bootstrap_servers)
        response = peer.ask("IncrementalAlterConfigs", 1, {"resources": [resource], "validate_only": False})
        assert response["responses"][0]["error_code"] == 0, response

    def _produce(self, topic: str, records: Iterable[tuple[int, str | None, int]]) -> None:
        self._send(self._worker, topic, records)
        assert self._worker.flush(WAIT_S) == 0
        assert self._refused == [], [str(each) for each in self._refused[:3]]

    def _send(self, producer: Producer, topic: str, records: Iterable[tuple[int, str | None, int]]) -> None:
        """Send records, each given by its partition, its key and the size of its value."""
        for partition, key, size in records:
            self._sequence += 1
            value = (b"%d " % self._sequence).ljust(size, b"x")
            headers: list[tuple[str, bytes | None]] = [("n", b"%d" % self._sequence), ("none", None)]
            producer.produce(
                topic,
                value,
                key,
                partition,
                on_delivery=self._delivered(tuple(headers)),
                # With LogAppendTime the delivery report lacks the broker's timestamp; the first read provides it.
                timestamp=int(time.time() * 1000) - self._sequence % 1000,
                headers=headers,  # type: ignore[arg-type]
            )
            producer.poll(0)

    def _delivered(self, headers: tuple[tuple[str, bytes | None], ...]) -> Callable[[KafkaError | None, Message], None]:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._refused.append(error)
                return
            topic, partition = cast(str, message.topic()), cast(int, message.partition())
            self._records[topic, partition].append(
                Read(cast(int, message.offset()), message.timestamp(), message.key(), message.value(), headers)
            )

        return delivered

    def _produce_raw(self) -> None:
        """Send raw batches. The broker knows the last batch of the former owner as a duplicate, and refuses a gap."""
        peer = Peer("the owner", self._site.bootstrap_servers)
        if self._raw_producer is None:
            response = peer.ask("InitProducerId", 4, {"transactional_id": None, "transaction_timeout_ms": 60_000})
            assert response["error_code"] == 0, response
            self._raw_producer = response["producer_id"], response["producer_epoch"]
        else:
            self._append_raw(peer, self._raw_end - 2, expected=(0, self._raw_end - 2))
            self._append_raw(peer, self._raw_end + 2, expected=(_OUT_OF_ORDER, -1))
        for _ in range(3):
            self._append_raw(peer, self._raw_end, expected=(0, self._raw_end))
            self._raw_end += 2

    def _append_raw(self, peer: Peer, sequence: int, expected: tuple[int, int]) -> None:
        assert self._raw_producer is not None
        values = [b"%d" % sequence, b"%d" % (sequence + 1)]
        data = batch(values, producer=(*self._raw_producer, sequence), timestamp=int(time.time() * 1000))
        body = {
            "transactional_id": None,
            "acks": -1,
            "timeout_ms": 30_000,
            "topic_data": [{"name": "raw", "partition_data": [{"index": 0, "records": data}]}],
        }
        (result,) = peer.ask("Produce", 9, body)["responses"][0]["partition_responses"]
        assert (result["error_code"], result["base_offset"]) == expected, result

    def _trim(self) -> None:
        """Delete all but the last fifty records with DeleteRecords."""
        cut = self._records["trimmed", 0][-50].offset
        self._done(self._admin.delete_records([TopicPartition("trimmed", 0, cut)]))
        self._starts["trimmed", 0] = cut
        _until(lambda: f"trimmed 0 {cut}" in self._checkpointed_starts(), self._checkpointed_starts)
        kept = [read for read in self._records["trimmed", 0] if read.offset >= cut]
        self._records["trimmed", 0] = kept

    def _checkpointed_starts(self) -> list[str]:
        files = [directory / "log-start-offset-checkpoint" for directory in self._site.log_dirs]
        return [line for file in files if file.exists() for line in file.read_text().splitlines()]

    def _read_as_group(self) -> None:
        """Read from the group's committed offsets to the end, and commit."""
        consumer = self._consumer(_GROUP, **{"auto.offset.reset": "earliest"})
        consumer.subscribe(["plain"])
        expected = {
            ("plain", partition): [
                read.offset
                for read in self._records["plain", partition]
                if read.offset >= self._committed.get(("plain", partition), (0, ""))[0]
            ]
            for partition in range(self._topics["plain"].partitions)
        }
        found: dict[tuple[str, int], list[int]] = {key: [] for key in expected}
        while sum(map(len, found.values())) < sum(map(len, expected.values())):
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None, message.error()
            found[cast(str, message.topic()), cast(int, message.partition())].append(cast(int, message.offset()))
        assert found == expected
        for (topic, partition), offsets in found.items():
            self._committed[topic, partition] = offsets[-1] + 1, f"round {self._rounds}"
        consumer.commit(
            offsets=[TopicPartition(*key, offset, metadata) for key, (offset, metadata) in self._committed.items()],
            asynchronous=False,
        )
        consumer.close()

    def _transact(self) -> None:
        """Commit a transaction and abort one with a producer id that stays the same, and leave one open for the next
        owner."""
        peer = Peer("the owner", self._site.bootstrap_servers)
        producer = self._producer(**{"transactional.id": _TRANSACTIONAL_ID})
        producer.init_transactions(WAIT_S)
        for commit in (True, False):
            producer.begin_transaction()
            self._send(producer, "transactions", [(0, None, 20)] * 3)
            producer.flush(WAIT_S)
            if commit:
                producer.commit_transaction(WAIT_S)
                sent = self._records["transactions", 0][-3:]
                self._in_committed_transactions += [read.offset for read in sent]
            else:
                producer.abort_transaction(WAIT_S)
        body = {"transactional_id": _TRANSACTIONAL_ID, "transaction_timeout_ms": 60_000}
        responses: list[dict[str, Any]] = []

        def init_producer_id() -> dict[str, Any]:
            responses.append(peer.ask("InitProducerId", 4, body))
            return responses[-1]

        # The coordinator may still be writing the markers of the abort.
        _until(lambda: init_producer_id()["error_code"] == 0)
        assert responses[-1]["producer_id"] == (self._transactional_producer or responses[-1]["producer_id"])
        self._transactional_producer = responses[-1]["producer_id"]
        open_producer = self._producer(**{"transactional.id": _OPEN_TRANSACTIONAL_ID})
        open_producer.init_transactions(WAIT_S)
        open_producer.begin_transaction()
        self._send(open_producer, "transactions", [(0, None, 20)] * 3)
        assert open_producer.flush(WAIT_S) == 0

    # -- checking -----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert that the owner has exactly the data that were written and not deleted, in the same log directories."""
        self._until_led()
        assert self._survivor.flush(WAIT_S) == 0
        assert self._refused == [], [str(each) for each in self._refused[:3]]
        assert self._ids() == {name: topic.id for name, topic in self._topics.items()}
        for name, topic in self._topics.items():
            found = self._dynamic(ConfigResource(ConfigResource.Type.TOPIC, name), _OWN_SOURCES)
            assert found == topic.config, (name, found)
        own = self._dynamic(ConfigResource(ConfigResource.Type.BROKER, "1"), _OWN_SOURCES)
        assert own == {"log.cleaner.threads": "2"}, own
        default = self._dynamic(ConfigResource(ConfigResource.Type.BROKER, "1"), _DEFAULT_SOURCES)
        default.pop("min.insync.replicas", None)  # Kafka's controller itself sets this default (KIP-966)
        assert default == {"message.max.bytes": "2000000"}, default
        self._check_records()
        self._check_transactions()
        self._check_group()
        self._check_directories()

    def _check_records(self) -> None:
        partitions = [(name, index) for name, topic in self._topics.items() for index in range(topic.partitions)]
        found, starts = self._read(partitions)
        moved = {key: start for key, start in starts.items() if start}
        assert moved == self._starts, (moved, self._starts)
        assert [read.value for read in found.pop(("raw", 0))] == [b"%d" % number for number in range(self._raw_end)]
        for key in partitions:
            if key[0] == "compact":
                assert _newest(found[key]) == _newest(self._records[key])
                assert set(found[key]) <= set(self._records[key])
            elif key[0] == "packed":
                # The broker set the timestamps: they must stay as the first read returned them.
                assert [read[2:] for read in found[key]] == [read[2:] for read in self._records[key]]
                known = [read for read in self._records[key] if read.timestamp[0] == 2]
                assert found[key][: len(known)] == known
                assert all(read.timestamp[0] == 2 for read in found[key])
                self._records[key] = found[key]
            elif key[0] != "raw":
                assert found[key] == self._records[key], _difference(key, found[key], self._records[key])

    def _check_transactions(self) -> None:
        """End the former owner's open transaction, and assert that only committed records are visible."""
        self._producer(**{"transactional.id": _OPEN_TRANSACTIONAL_ID}).init_transactions(WAIT_S)
        partition = "transactions", 0
        found, _ = self._read([partition], isolation="read_committed")
        assert [read.offset for read in found[partition]] == self._in_committed_transactions

    def _read(
        self, partitions: list[tuple[str, int]], *, isolation: str = "read_uncommitted"
    ) -> tuple[dict[tuple[str, int], list[Read]], dict[tuple[str, int], int]]:
        """Return all records of these partitions, and their log start offsets."""
        consumer = self._consumer("no-group", **{"enable.partition.eof": True, "isolation.level": isolation})
        starts = {key: _start(consumer, key) for key in partitions}
        consumer.assign([TopicPartition(*key, starts[key]) for key in partitions])
        found: dict[tuple[str, int], list[Read]] = {key: [] for key in partitions}
        unread = set(partitions)
        epochs: dict[tuple[str, int], int] = {}
        while unread:
            message = consumer.poll(WAIT_S)
            assert message is not None, sorted(unread)
            key = cast(str, message.topic()), cast(int, message.partition())
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                unread.discard(key)
                continue
            offset, epoch = cast(int, message.offset()), message.leader_epoch()
            headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
            found[key].append(Read(offset, message.timestamp(), message.key(), message.value(), tuple(headers)))
            assert self._epochs.setdefault((*key, offset), epoch) == epoch, (key, offset)
            assert epochs.get(key, 0) <= (epoch or 0), (key, offset, "the leader epoch goes back")
            epochs[key] = epoch or 0
        consumer.close()
        return found, starts

    def _check_group(self) -> None:
        futures = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(_GROUP)])
        found = futures[_GROUP].result(WAIT_S).topic_partitions
        committed = {(each.topic, each.partition): (each.offset, each.metadata) for each in found}
        assert committed == self._committed, committed

    def _check_directories(self) -> None:
        """Assert that no log became a stray, and that deleted logs disappear even after a change of owner."""
        expected = {f"{name}-{index}" for name, topic in self._topics.items() for index in range(topic.partitions)}

        def partition_directories() -> set[str]:
            found = self._site.directories()
            assert not [name for name in found if name.endswith("-stray")]
            return {name for name in found if not name.startswith("__")}

        _until(lambda: partition_directories() == expected, lambda: partition_directories() ^ expected)
        moved = {
            name: path for name, path in self._site.directories().items() if self._directories.get(name, path) != path
        }
        assert moved == {}
        assert set(self._directories) <= set(self._site.directories())
        assert len(set(self._site.directories().values())) in (1, 2)

    def _consumer(self, group: str, **settings: object) -> Consumer:
        return Consumer({**self._common, "enable.auto.commit": False, "group.id": group, **settings})

    def _dynamic(self, resource: ConfigResource, sources: tuple[ConfigSource, ...]) -> dict[str, str | None]:
        described = self._admin.describe_configs([resource])[resource].result(WAIT_S)
        return {
            name: entry.value for name, entry in described.items() if entry.source in [each.value for each in sources]
        }

    def _ids(self) -> dict[str, str]:
        futures = self._admin.describe_topics(TopicCollection([*self._topics]))
        return {name: str(future.result(WAIT_S).topic_id) for name, future in futures.items()}

    def _until_led(self) -> None:
        """Wait until Metadata lists exactly the expected topics, with a leader for each partition."""

        def as_expected() -> bool:
            found = self._admin.list_topics(timeout=WAIT_S).topics
            return {name: len(topic.partitions) for name, topic in found.items() if not name.startswith("__")} == {
                name: topic.partitions for name, topic in self._topics.items()
            } and all(each.leader == 1 for topic in found.values() for each in topic.partitions.values())

        _until(as_expected, lambda: sorted(self._admin.list_topics(timeout=WAIT_S).topics))

    def _done(self, futures: dict[Any, Any]) -> None:
        for future in futures.values():
            future.result(WAIT_S)


def _start(consumer: Consumer, partition: tuple[str, int]) -> int:
    """Return a log start offset. A broker that has just started may list itself as the leader before it leads."""
    found: list[int] = []

    def is_led() -> bool:
        try:
            found.append(consumer.get_watermark_offsets(TopicPartition(*partition), WAIT_S)[0])
        except KafkaException as refusal:
            error: KafkaError = refusal.args[0]
            if error.code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
        return bool(found)

    _until(is_led, lambda: partition)
    return found[0]


def _newest(records: list[Read]) -> dict[bytes | None, Read]:
    return {read.key: read for read in records}


def _names(directory: str, topic: str) -> bool:
    return re.fullmatch(rf"{re.escape(topic)}-\d+", directory) is not None


def _difference(key: tuple[str, int], found: list[Read], expected: list[Read]) -> str:
    """Describe the first difference only."""
    pairs = enumerate(zip(found, expected, strict=False))
    first = next((f"{left} is not {right}" for _, (left, right) in pairs if left != right), "records are missing")
    return f"{key}: {len(found)} records, not {len(expected)}: {first}"


def _until(condition: Callable[[], object], context: Callable[[], object] = str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"condition is not true after {WAIT_S:g} s: {context()}"
        time.sleep(0.1)
