"""A controller on a real data directory, with seeded random numbers and a stopped clock."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from odradek_controller.commands.context import CommandContext
from odradek_controller.controller import Controller
from odradek_controller.image import ClusterImage
from odradek_controller.levels import Emulation, Features
from odradek_controller.metadata_log_store import MAX_BATCH_BYTES, MetadataLogStore, RunFlush
from odradek_controller.replay import replay
from odradek_controller.snapshot_writer import MAX_LOG_BYTES, SNAPSHOT_RECORDS, StartDiskWork
from odradek_log.directory import LogDirectory
from odradek_log.disk import Disk, RealDisk
from odradek_log.reporting import Reporter
from odradek_wire.errors import ErrorCode
from odradek_wire.message import Message
from odradek_wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek_wire.messages.broker_registration import BrokerRegistrationRequest
from odradek_wire.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from odradek_wire.messages.config_record import ConfigRecord
from odradek_wire.messages.create_topics import CreateTopicsRequest
from odradek_wire.messages.register_broker_record import RegisterBrokerRecord
from odradek_wire.uuid import Uuid

CLUSTER_ID = "MDEyMzQ1Njc4OWFiY2RlZg"
START_MS = 1_700_000_000_000


def uuid_of(number: int) -> Uuid:
    return Uuid(number.to_bytes(16, "big"))


def directory_of(broker: int) -> Uuid:
    return uuid_of(1000 + broker)


def context(
    static: Mapping[str, str] | None = None,
    seed: int = 0,
    *,
    emulation: Emulation = Emulation.UNION,
    features: Features | None = None,
    next_offset: int = 0,
) -> CommandContext:
    rng = random.Random(seed)
    return CommandContext(
        node_id=1,
        randbytes=rng.randbytes,
        randbelow=rng.randrange,
        static=static or {},
        emulation=emulation,
        features=features,
        next_offset=next_offset,
    )


def image_of(records: Iterable[Message], before: ClusterImage | None = None) -> ClusterImage:
    before = before or ClusterImage(cluster_id=CLUSTER_ID)
    found = list(records)
    return replay(before, found, offset=before.offset + len(found), epoch=1).image


def cluster(brokers: Mapping[int, str | None], fenced: Iterable[int] = ()) -> ClusterImage:
    """Return a cluster of 4.3 with a broker in each of these racks."""
    from odradek_controller.image_records import feature_records

    records: list[Message] = list(feature_records(Emulation.KAFKA_4_3.initial))
    records.append(ConfigRecord(4, "", "min.insync.replicas", "1"))
    for broker, rack in brokers.items():
        endpoint = RegisterBrokerRecord.BrokerEndpoint("PLAINTEXT", "localhost", 9000 + broker, 0)
        records.append(
            RegisterBrokerRecord(
                broker, False, uuid_of(broker), 10 + broker, [endpoint], [], rack, True, False, [directory_of(broker)]
            )
        )
        if broker not in fenced:
            records.append(BrokerRegistrationChangeRecord(broker, 10 + broker, -1))
    return image_of(records)


def registration(broker: int, incarnation: int, emulation: Emulation = Emulation.UNION) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker,
        cluster_id=CLUSTER_ID,
        incarnation_id=uuid_of(incarnation),
        listeners=[BrokerRegistrationRequest.Listener("PLAINTEXT", "localhost", 9000 + broker, 0)],
        features=[
            BrokerRegistrationRequest.Feature(name, levels.low, levels.high)
            for name, levels in emulation.supported.items()
        ],
        rack=None,
        log_dirs=[directory_of(broker)],
    )


async def join(controller: Controller, broker: int, incarnation: int) -> None:
    response = await controller.submit(registration(broker, incarnation, controller.emulation))
    assert response.error_code == ErrorCode.NONE
    await controller.submit(BrokerHeartbeatRequest(broker, response.broker_epoch))


def topics(*names: str, partitions: int = 1, factor: int = 1) -> CreateTopicsRequest:
    wanted = [CreateTopicsRequest.CreatableTopic(name, partitions, factor) for name in names]
    return CreateTopicsRequest(topics=wanted)


@asynccontextmanager
async def running(
    path: Path,
    *,
    emulation: Emulation = Emulation.UNION,
    kill: bool = False,
    snapshot_records: int = SNAPSHOT_RECORDS,
    max_log_bytes: int = MAX_LOG_BYTES,
    max_batch_bytes: int = MAX_BATCH_BYTES,
    disk: Disk | None = None,
    seed: int = 0,
    reporter: Reporter | None = None,
    start_disk_work: StartDiskWork | None = None,
    run_flush: RunFlush | None = None,
) -> AsyncIterator[Controller]:
    """Open a controller on this directory; close or kill it at the end."""
    later: list[object] = []
    directory = LogDirectory.open(
        path,
        wall_ms=lambda: START_MS,
        later=lambda _delay, callback: later.append(callback),
        disk=disk or RealDisk(sync=False),
    )
    store = MetadataLogStore(
        directory,
        node_id=1,
        cluster_id=CLUSTER_ID,
        initial=emulation.initial,
        start_disk_work=start_disk_work,
        run_flush=run_flush,
        snapshot_records=snapshot_records,
        max_log_bytes=max_log_bytes,
        max_batch_bytes=max_batch_bytes,
    )
    controller = Controller(store, node_id=1, emulation=emulation, rng=random.Random(seed), reporter=reporter)
    try:
        await controller.open()
        yield controller
    finally:
        if kill:
            store.close_without_writing()
            directory.close_without_writing()
        else:
            await controller.close()
            directory.close()
