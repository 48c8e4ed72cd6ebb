"""Random clients, log and network: the invariants of the transaction coordinator."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from broker.tests.transactions.core_alone import MAX_EPOCH, CoreAlone

from odradek_broker.transactions.core.transaction_metadata import (
    NO_EPOCH,
    Producer,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from odradek_broker.transactions.core.transaction_records import TransactionRecord, decode_record
from odradek_broker.transactions.core.transaction_rules import NO_PRODUCER
from odradek_broker.transactions.core.transaction_step import TransactionSettings, TransactionStep
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.end_txn import EndTxnRequest
from odradek_wire.messages.init_producer_id import InitProducerIdRequest

IDS = ["t", "u"]
PARTITIONS: list[TopicPartition] = [("a", 0), ("a", 1), ("b", 0)]
SETTINGS = TransactionSettings(id_expiration_ms=60_000, abort_interval_ms=700)

EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
DECIDED = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


@dataclass
class History:
    """The records of one transactional id that took effect, in the order of the log."""

    present: TransactionMetadata | None = None
    used_ids: set[int] = field(default_factory=set)
    decisions: dict[Producer, bool] = field(default_factory=dict)
    """Producer → whether its last transaction was committed."""
    outdated: set[Producer] = field(default_factory=set)
    """Producers whose transaction ended with an increment of the epoch."""

    def took_effect(self, after: TransactionMetadata | None) -> None:
        before, self.present = self.present, after
        if after is None:
            assert before is not None
            assert not before.is_open
            return
        if before is None:
            assert after.state is EMPTY
            assert after.producer.epoch == 0
        elif after.producer.id == before.producer.id:
            assert after.producer.epoch >= before.producer.epoch, "epochs never go back"
        if before is None or after.producer.id != before.producer.id:
            assert after.producer.epoch == 0
            assert after.producer.id not in self.used_ids, "producer ids are used once"
            assert before is None or before.is_epoch_exhausted
        self.used_ids.add(after.producer.id)
        if before is not None:
            self._moved(before, after)

    def _moved(self, before: TransactionMetadata, after: TransactionMetadata) -> None:
        if before.state in DECIDED:
            assert after.state is DECIDED[before.state], "a decision does not change"
            assert after.partitions == frozenset()
        elif after.state is EMPTY:
            assert not before.is_open
        elif after.state is ONGOING:
            assert before.partitions <= after.partitions
            assert after.producer == before.producer
        else:
            assert after.state in DECIDED
            assert before.state is ONGOING or not after.commits, "only an open transaction is committed"
            assert after.partitions == before.partitions
            if after.client_version >= 2 and before.producer.epoch < MAX_EPOCH:
                assert before.producer not in self.outdated, "every epoch has one outcome"
                assert after.producer.epoch == before.producer.epoch + 1
                self.outdated.add(before.producer)
            self.decisions[before.producer] = after.commits


@dataclass(eq=False)
class Client:
    transactional_id: str
    grows: bool
    """Whether it uses transaction version 2."""
    producer: Producer | None = None
    before: list[Producer] = field(default_factory=list)

    def becomes(self, producer: Producer | None) -> None:
        if self.producer is not None:
            self.before.append(self.producer)
        self.producer = producer


class Watched(CoreAlone):
    """The log and the clients: checks every record that takes effect, and every response."""

    def __init__(self, world: World, *args: object) -> None:
        self.world = world
        super().__init__(*args)  # type: ignore[arg-type]

    def apply(self, step: TransactionStep) -> None:
        super().apply(step)
        for work in step.markers:
            self.world.markers_sent(work.transactional_id, work.producer, work.commit)
        for request_id, _ in step.responses:
            answered = self.world.waiting.pop(request_id, None)
            if answered is not None:
                answered(request_id)

    def take_effect(self, records: Iterable[TransactionRecord]) -> None:
        for record in records:
            self.world.history[record.transactional_id].took_effect(record.transaction)
            self.shard.replay(record)


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.level = self.random.choice([1, 2, 2])
        self.history = {id_: History() for id_ in IDS}
        self.waiting: dict[object, Callable[[object], None]] = {}
        self.initialized: set[tuple[str, Producer]] = set()
        self.sent: dict[tuple[str, Producer], bool] = {}
        self.requests = 0
        self.core = Watched(self, self.level, SETTINGS)
        self.clients = [Client(id_, self.level >= 2 and self.random.random() < 0.8) for id_ in IDS for _ in range(2)]
        if self.random.random() < 0.4:
            for id_ in IDS:
                almost = TransactionMetadata(
                    Producer(7, MAX_EPOCH - self.random.randint(2, 12)), 2000, previous_producer_id=7
                )
                self.history[id_].present = almost
                self.core.put(almost, id_)

    # -- clients

    def ask(self, then: Callable[[object], None]) -> object:
        self.requests += 1
        request_id = f"request {self.requests}"
        self.waiting[request_id] = then
        return request_id

    def identity(self, client: Client) -> Producer:
        """Return the present producer, or now and then an earlier one, as in a late request."""
        if client.before and self.random.random() < 0.2:
            return self.random.choice(client.before[-3:])
        return client.producer or Producer(9999, 0)

    def init(self, client: Client) -> None:
        expected = self.identity(client) if self.random.random() < 0.3 else NO_PRODUCER

        def answered(request_id: object) -> None:
            error, producer = self.outcome(request_id)
            if error:
                return
            present = self.history[client.transactional_id].present
            assert present is not None
            assert (present.producer, present.state) == (producer, EMPTY), "a producer in a response may produce"
            if expected == NO_PRODUCER:
                assert (client.transactional_id, producer) not in self.initialized, (
                    "no other client got the same producer"
                )
            self.initialized.add((client.transactional_id, producer))
            client.becomes(producer)

        request = InitProducerIdRequest(client.transactional_id, self.random.choice([500, 2000]), *expected)
        shard, core = self.core.shard, self.core
        fresh_producer_id = (
            core.generate_producer_id() if shard.init_may_need_producer_id(client.transactional_id) else None
        )
        core.apply(shard.init_producer_id(request, 5, fresh_producer_id, self.ask(answered), core.now))

    def add(self, client: Client) -> None:
        partitions = self.random.sample(PARTITIONS, self.random.randint(1, 2))
        producer = self.identity(client)

        def answered(request_id: object) -> None:
            error = self.core.responses[request_id]
            if not error:
                present = self.history[client.transactional_id].present
                assert present is not None
                assert present.producer == producer
                assert present.partitions.issuperset(partitions)
            elif error == ErrorCode.PRODUCER_FENCED and producer == client.producer:
                client.becomes(None)

        version = 4 if client.grows else 3
        self.core.apply(
            self.core.shard.add_partitions(
                client.transactional_id, producer, partitions, version, self.ask(answered), self.core.now
            )
        )

    def end(self, client: Client) -> None:
        producer, commit = self.identity(client), self.random.random() < 0.6

        def answered(request_id: object) -> None:
            error, next_producer = self.outcome(request_id)
            history = self.history[client.transactional_id]
            if not error:
                assert history.decisions[producer] == commit, "the response has the decision"
                if client.grows and producer == client.producer:
                    client.becomes(next_producer)
            elif error == ErrorCode.PRODUCER_FENCED and producer == client.producer:
                client.becomes(None)

        request = EndTxnRequest(client.transactional_id, *producer, committed=commit)
        shard, core = self.core.shard, self.core
        fresh_producer_id = (
            core.generate_producer_id() if shard.end_may_need_producer_id(client.transactional_id) else None
        )
        version = 5 if client.grows else 4
        core.apply(shard.end_txn(request, version, fresh_producer_id, self.ask(answered), core.now))

    def outcome(self, request_id: object) -> tuple[ErrorCode, Producer]:
        outcome = self.core.outcome(request_id)
        assert outcome is not None
        return outcome

    # -- the coordinator

    def markers_sent(self, transactional_id: str, producer: Producer, commit: bool) -> None:
        present = self.history[transactional_id].present
        assert present is not None
        assert (present.producer, present.commits, present.is_decided) == (producer, commit, True)
        if present.client_version >= 2:
            first = self.sent.setdefault((transactional_id, producer), commit)
            assert first == commit, "all markers of one epoch have the same outcome"

    def write_some_markers(self) -> None:
        if not self.core.markers:
            return
        self.random.shuffle(self.core.markers)
        partitions = sorted(self.core.markers[0].partitions)
        self.core.write_markers(*self.random.sample(partitions, self.random.randint(1, len(partitions))))

    def log_trouble(self) -> None:
        kind = self.random.random()
        if kind < 0.3:
            self.core.holds = not self.core.holds
            if not self.core.holds:
                self.core.let_through()
        elif kind < 0.6:
            if self.core.held:
                self.core.let_one_through()
        elif kind < 0.8:
            self.core.time_out()
        else:
            refusals = [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS]
            self.core.refuses = self.random.choice(refusals)

    def fail_over(self) -> None:
        """Load the next coordinator. It has lost a random number of the last records that the log held back."""
        old = self.core
        old.apply(old.shard.unload(old.now))
        assert self.waiting == {}, "every request has a response"
        survivors = self.random.randint(0, len(old.held))
        lost = sum(len(step.records) for step in old.held[survivors:])
        log = old.log[: len(old.log) - lost]
        for step in old.held[:survivors]:
            for record in step.records:
                self.history[record.transactional_id].took_effect(record.transaction)
        ids = old.ids
        self.core = Watched(self, self.level, SETTINGS, log, old.now, old.coordinator_epoch + 1)
        self.core.ids = ids

    def run(self, steps: int) -> None:
        for _ in range(steps):
            chance = self.random.random()
            client = self.random.choice(self.clients)
            if chance < 0.12:
                self.init(client)
            elif chance < 0.4:
                self.add(client)
            elif chance < 0.6:
                self.end(client)
            elif chance < 0.8:
                self.write_some_markers()
            elif chance < 0.9:
                self.log_trouble()
            elif chance < 0.97:
                self.core.pass_time(self.random.choice([1, 100, 900, 900, 30_000]))
                self.core.expire_ids()
            else:
                self.fail_over()
            self.check()

    def check(self) -> None:
        for id_ in IDS:
            assert self.core.shard.transactions.get(id_) == self.forgetful(id_)

    def forgetful(self, id_: str) -> TransactionMetadata | None:
        """Return the metadata of the history, with the field that the log does not store taken from the coordinator."""
        present = self.history[id_].present
        known = self.core.shard.transactions.get(id_)
        if present is None or known is None:
            return present
        return replace(present, last_epoch=known.last_epoch)

    def calm_down(self) -> None:
        self.core.refuses = ErrorCode.NONE
        self.core.holds = False
        self.core.let_through()
        for _ in range(4):
            self.core.pass_time(3000)
            while self.core.markers:
                self.core.write_markers()


@pytest.mark.parametrize("seed", range(150))
def test_random_transactions_have_one_outcome_and_one_response(seed: int) -> None:
    world = World(seed)
    world.run(400)
    world.calm_down()
    assert world.waiting == {}, "every request has a response"
    shard = world.core.shard
    assert all(not transaction.is_open for transaction in shard.transactions.values()), "nothing stays open"
    assert shard.next_ms() is None
    for id_ in IDS:
        outcome = world.core.init(id_)
        assert outcome is not None
        assert outcome[0] == ErrorCode.NONE
        assert world.core.add(outcome[1], PARTITIONS[0], transactional_id=id_) == ErrorCode.NONE, (
            "the next transaction may begin"
        )


@pytest.mark.parametrize("seed", range(40))
def test_the_state_after_loading_is_that_of_the_log(seed: int) -> None:
    world = World(seed)
    world.run(200)
    world.calm_down()
    again = CoreAlone(world.level, SETTINGS, world.core.log, world.core.now)
    assert again.shard.transactions == {
        id_: replace(transaction, last_epoch=NO_EPOCH) for id_, transaction in world.core.shard.transactions.items()
    }
    last: dict[str, TransactionRecord] = {}
    for key, value in world.core.log:
        record = decode_record(key, value)
        assert record is not None
        last[record.transactional_id] = record
    assert {id_: record.transaction for id_, record in last.items() if record.transaction} == again.shard.transactions


def test_the_random_runs_reach_every_state_and_event() -> None:
    """The invariants prove little unless the runs reach every state."""
    seen: set[object] = set()
    for seed in range(30):
        world = World(seed)
        world.run(400)
        for answer in world.core.responses.values():
            seen.add(ErrorCode(answer if isinstance(answer, ErrorCode) else answer.error_code))
        for history in world.history.values():
            seen.update(history.decisions.values())
            seen.add(("rotated", len(history.used_ids) > 2))
        seen.update(world.core.events)
        seen.add(("failed over", world.core.coordinator_epoch > 4))
    assert seen >= {
        True,
        False,
        ErrorCode.NONE,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ("rotated", True),
        ("failed over", True),
        "timed-out transaction aborted",
        "open transaction aborted for a new producer",
        "transactional id expired",
    }
