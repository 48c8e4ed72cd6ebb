"""Three brokers: replicated writes, the failure of a leader, the move of leaders, ten thousand partitions."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator
from threading import Thread

from bench import load
from bench.clusters import (
    BROKERS,
    ONE_PROCESS,
    Brokers,
    KafkaProcesses,
    OdradekCluster,
    OdradekProcesses,
    clusters,
    start_from_command_line,
)
from bench.measurement import KAFKA, ODRADEK, Figures, Measurement, at_least, at_most, limit
from bench.process import cpu_seconds, resident_mb
from bench.ready import wait_for_metadata
from bench.session import Session
from bench.topics import create, create_on, topic
from odradek.client import Client, ClientError
from odradek.client.client import parse_address
from odradek.client.records import RecordProducer
from odradek_wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from odradek_wire.messages.metadata import MetadataRequest, MetadataResponse
from odradek_wire.records.record import Record

_BYTES = 300_000_000
_LEADERS = 1000
_PARTITIONS = 10_000
_TOPICS = 10
_SETTLE_S = 2.0
_GIVE_UP_S = 300.0
_PAUSE_S = 0.005
_HEARTBEAT_S = 3.0
_RUNS = 3


def measurements(session: Session) -> Iterator[Measurement]:
    yield from _replicated(session)
    yield from _leaders(session)
    yield from _starts(session)
    yield from _many_partitions(session)


def _replicated(session: Session) -> Iterator[Measurement]:
    size = session.sized(_BYTES)

    def measure(cluster: Brokers) -> dict[str, float]:
        address = cluster.addresses[0]
        with topic(address, replicas=BROKERS) as name:
            before = _cpu(cluster)
            done = load.run("bulk", "produce", address, name, "--bytes", size)
            return {
                "rate": done["bytes"] / done["seconds"] / 1e6,
                "cpu": (_cpu(cluster) - before) / done["bytes"] * 1e9,
                "client": done["client_cpu"] / done["seconds"],
            }

    with clusters(session, OdradekProcesses, OdradekCluster, KafkaProcesses) as all_three:
        for cluster in all_three:
            cluster.start()
            for _ in range(session.runs(2)):
                measure(cluster)
        medians = session.in_turn(all_three, measure, session.runs(_RUNS))
    note = f"three replicas of each record; the client used {medians['client'][ODRADEK]:.1f} processors"
    work = "produce 1 KiB to 3 brokers, acks=all"
    yield Measurement(work, "MB/s", _processes(medians["rate"]), (at_least(1.0),), note)
    yield Measurement("… server CPU per GB", "CPU-s", _processes(medians["cpu"]))
    yield Measurement("… with Odradek's three in one process", "MB/s", _one_process(medians["rate"]))
    yield Measurement("… server CPU per GB", "CPU-s", _one_process(medians["cpu"]))


def _leaders(session: Session) -> Iterator[Measurement]:
    count = session.sized(_LEADERS)

    def measure(cluster: Brokers) -> dict[str, float]:
        cluster.start()
        first = cluster.addresses[0]
        create_on(first, "led", count, [1, 0, 2])
        _wait(first, lambda known: _led(known, "led", 1) == count and _in_sync(known))
        # In another thread: the measurement does not wait for the end of the process.
        stopping = Thread(target=cluster.stop, args=(1,))
        begun = time.perf_counter()
        stopping.start()
        _wait(first, lambda known: _led(known, "led", 0) == count)
        handed_over = time.perf_counter() - begun
        stopping.join()
        cluster.start(1)
        _wait(first, _in_sync)
        begun = time.perf_counter()
        with Client(first, timeout_s=_GIVE_UP_S) as client:
            client.call_controller(ElectLeadersRequest(0, None, int(_GIVE_UP_S * 1000)), ElectLeadersResponse)
        for address in cluster.addresses:
            _wait(address, lambda known: _led(known, "led", 1) == count)
        elected = time.perf_counter() - begun
        create_on(first, "written", 1, [2, 0, 1])
        _wait(first, lambda known: _led(known, "written", 2) == 1 and _in_sync(known))
        # Kill it at a random moment between two heartbeats, which are two or three seconds apart.
        time.sleep(random.uniform(0, session.seconds(_HEARTBEAT_S)))
        died = _next_write_after(cluster, "written", leader=2)
        cluster.close()
        return {"shutdown": handed_over, "elected": elected, "died": died}

    with clusters(session, OdradekProcesses, OdradekCluster, KafkaProcesses) as all_three:
        figures = session.in_turn(all_three, measure)
    handed_over, elected, died = figures["shutdown"], figures["elected"], figures["died"]
    moved = f"controlled shutdown of the leader of {count:,} partitions"
    named = "until Metadata names the new leaders"
    yield Measurement(moved, "s", _processes(handed_over), (at_most(1.0),), named)
    yield Measurement("… with Odradek's three in one process", "s", _one_process(handed_over), (at_most(1.0),), named)
    moved = f"ElectLeaders for {count:,} partitions"
    named = "until Metadata of every broker names the new leaders"
    yield Measurement(moved, "s", _processes(elected), (at_most(1.0),), named)
    yield Measurement("… with Odradek's three in one process", "s", _one_process(elected), (at_most(1.0),), named)
    work = "kill -9 of a leader to the next acknowledged write"
    note = "both have a session timeout of 9 s"
    yield Measurement(work, "s", _processes(died), (at_most(1.0),), note)
    note = "the process kills the broker itself, without a session timeout"
    yield Measurement("… with Odradek's three in one process", "s", _one_process(died), (at_most(1.0),), note)


def _processes(figures: Figures) -> Figures:
    """Select the clusters of three processes."""
    return {ODRADEK: figures[ODRADEK], KAFKA: figures[KAFKA]}


def _one_process(figures: Figures) -> Figures:
    return {ODRADEK: figures[ONE_PROCESS], KAFKA: figures[KAFKA]}


def _next_write_after(cluster: Brokers, name: str, *, leader: int) -> float:
    """Kill the leader of a topic's only partition. Return the seconds to the next acknowledged record (acks=all).

    The client requests Metadata before each try: librdkafka would wait two seconds before it does.
    """
    address = cluster.addresses[0]
    _write(address, name)
    begun = time.perf_counter()
    cluster.kill(leader)
    while not _write(address, name):
        if time.perf_counter() > begun + _GIVE_UP_S:
            raise TimeoutError(f"{cluster.name}: no write was acknowledged within {_GIVE_UP_S:.0f} s")
        time.sleep(_PAUSE_S)
    return time.perf_counter() - begun


def _write(address: str, name: str) -> bool:
    """Write a record. Return whether it was acknowledged."""
    try:
        with Client(address) as client:
            writer = RecordProducer(client, name)
            writer.write(Record(0, time.time_ns() // 1_000_000, None, b"value"))
            writer.flush()
    except ClientError:
        return False
    return True


def _starts(session: Session) -> Iterator[Measurement]:
    own = load.run("clusters", "--clusters", session.runs(9), "--brokers", BROKERS)
    note = f"the first cluster of a process, with the imports: {own['first_ms']:.0f} ms"
    work = "`Cluster(brokers=3)` to Metadata with all brokers, in a running process"
    yield Measurement(work, "ms", {ODRADEK: own["ms"]}, (limit(60, "ms"),), note)
    seconds, idle = [], []
    for _ in range(session.runs()):
        taken, program = start_from_command_line(session)
        try:
            time.sleep(session.seconds(_SETTLE_S))
            assert program.pid is not None
            seconds.append(taken)
            idle.append(resident_mb(program.pid))
        finally:
            program.close()
    yield Measurement(
        "`odradek up --brokers 3` to Metadata with all brokers",
        "s",
        {ODRADEK: statistics.median(seconds)},
        (limit(0.5, "s"),),
    )
    yield Measurement("memory, idle, 3 brokers", "MB", {ODRADEK: statistics.median(idle)}, (limit(70, "MB"),))


def _many_partitions(session: Session) -> Iterator[Measurement]:
    count = session.sized(_PARTITIONS) // _TOPICS

    def measure(cluster: Brokers) -> dict[str, float]:
        cluster.start()
        first = cluster.addresses[0]
        before = _resident(cluster)
        names = [f"many-{number}" for number in range(_TOPICS)]
        begun = time.perf_counter()
        for name in names:
            create(first, [name], partitions=count, replicas=BROKERS)
        _wait(first, lambda known: len(known.topics) >= _TOPICS and _all_led(known) and _in_sync(known))
        figures = {"create": time.perf_counter() - begun}
        time.sleep(session.seconds(_SETTLE_S))
        figures["memory"] = _resident(cluster)
        figures["each"] = (figures["memory"] - before) * 1e3 / (count * _TOPICS)
        begun = time.perf_counter()
        cluster.kill(2)
        _wait(first, lambda known: _all_led(known) and not any(_led(known, name, 2) for name in names))
        figures["failover"] = time.perf_counter() - begun
        begun = time.perf_counter()
        cluster.start(2)
        _wait(first, _in_sync)
        figures["restart"] = time.perf_counter() - begun
        cluster.close()
        return figures

    with clusters(session, OdradekProcesses, OdradekCluster, KafkaProcesses) as all_three:
        figures = session.in_turn(all_three, measure, 1)
    for name, select in (("", _processes), (", Odradek's in one process", _one_process)):
        work = f"{count * _TOPICS:,} partitions on 3 brokers, 3 replicas each{name}: creation"
        yield Measurement(work, "s", select(figures["create"]), (at_most(1.0),), "until every ISR is complete")
        yield Measurement("… memory", "MB", select(figures["memory"]), (at_most(1.0),), "of all processes")
        each = (limit(6 * BROKERS, "KB"),) if select is _one_process else ()
        yield Measurement("… memory per partition", "KB", select(figures["each"]), each, "three replicas")
        yield Measurement(
            "… failover of a killed broker",
            "s",
            select(figures["failover"]),
            (at_most(1.0),),
            "until every partition has another leader",
        )
        yield Measurement("… its restart", "s", select(figures["restart"]), (at_most(1.0),), "until it is in every ISR")


def _cpu(cluster: Brokers) -> float:
    return sum(cpu_seconds(pid) for pid in cluster.pids)


def _resident(cluster: Brokers) -> float:
    return sum(resident_mb(pid) for pid in cluster.pids)


def _wait(address: str, holds: Callable[[MetadataResponse], bool]) -> None:
    """Wait until the condition holds for the metadata of one broker."""
    wait_for_metadata(parse_address(address), timeout_s=_GIVE_UP_S)
    deadline = time.monotonic() + _GIVE_UP_S
    with Client(address, timeout_s=_GIVE_UP_S) as client:
        while not holds(client.call(MetadataRequest(None, allow_auto_topic_creation=False), MetadataResponse)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{address}: the expected metadata did not come within {_GIVE_UP_S:.0f} s")
            time.sleep(_PAUSE_S)


def _led(known: MetadataResponse, name: str, broker: int) -> int:
    """Count the partitions of a topic that a broker leads."""
    return sum(
        partition.leader_id == broker for topic in known.topics if topic.name == name for partition in topic.partitions
    )


def _all_led(known: MetadataResponse) -> bool:
    return all(partition.leader_id >= 0 for topic in known.topics for partition in topic.partitions)


def _in_sync(known: MetadataResponse) -> bool:
    return len(known.brokers) == BROKERS and all(
        len(partition.isr_nodes) == len(partition.replica_nodes)
        for topic in known.topics
        for partition in topic.partitions
    )
