"""The metadata log: restarts, kills, snapshots, and directories of Kafka."""

import errno
import json
import tarfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from controller.tests.controller_kit import CLUSTER_ID, context, join, running, topics
from log.tests.failing_disk import FailingDisk

from odradek_controller.commands.brokers import fence_broker
from odradek_controller.controller import Controller
from odradek_controller.image import ClusterImage, ConfigResource
from odradek_controller.levels import Emulation
from odradek_controller.metadata_log_store import MetadataLogStore
from odradek_controller.replay import InvalidMetadataError, replay
from odradek_controller.snapshots import decode_snapshot
from odradek_log.log_errors import LogOfflineError
from odradek_wire.errors import ErrorCode
from odradek_wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek_wire.messages.begin_transaction_record import BeginTransactionRecord
from odradek_wire.messages.delete_topics import DeleteTopicsRequest
from odradek_wire.messages.describe_quorum import DescribeQuorumRequest
from odradek_wire.messages.k_raft_version_record import KRaftVersionRecord
from odradek_wire.messages.topic_record import TopicRecord
from odradek_wire.uuid import Uuid, uuid_to_text

METADATA = "__cluster_metadata-0"
KAFKA_DIRECTORY = Path(__file__).parent / "facts" / "kafka-4.3.0-data.tar.xz"


DYNAMIC_DIRECTORY = KAFKA_DIRECTORY.with_name("kafka-4.3.0-dynamic-quorum.tar.xz")


def unpack(archive: Path, target: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(target, filter="data")


def store_of(controller: Controller) -> MetadataLogStore:
    assert isinstance(controller.store, MetadataLogStore)
    return controller.store


def fenced(image: ClusterImage) -> ClusterImage:
    """Return the image after a clean end: broker 1 is fenced and leads nothing."""
    records = fence_broker(image, 1, context())
    return replay(image, records, offset=image.offset + len(records)).image


async def test_a_new_cluster_has_the_levels_of_4_3_and_nothing_else(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        image = controller.image
    assert image == ClusterImage(
        cluster_id=CLUSTER_ID,
        offset=9,
        epoch=1,
        levels=Emulation.KAFKA_4_3.initial,
        configs={ConfigResource(4, ""): {"min.insync.replicas": "1"}},
    )
    assert json.loads((tmp_path / METADATA / "quorum-state").read_text()) == {
        "clusterId": "",
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}],
        "data_version": 0,
    }


@pytest.mark.parametrize("kill", [False, True])
async def test_a_restart_restores_the_image(tmp_path: Path, kill: bool) -> None:
    async with running(tmp_path, kill=kill) as controller:
        await join(controller, 1, 11)
        await controller.submit(topics("a", "b", partitions=3))
        await controller.submit(DeleteTopicsRequest(topic_names=["a"]))
        ids = await controller.submit(AllocateProducerIdsRequest(1, controller.image.brokers[1].epoch))
        before = controller.image
    assert (ids.producer_id_start, ids.producer_id_len) == (0, 1000)
    async with running(tmp_path) as controller:
        after = controller.image
        assert after == (before if kill else fenced(before))
        more = await controller.submit(AllocateProducerIdsRequest(1, after.brokers[1].epoch))
        assert (more.producer_id_start, controller.image.epoch) == (1000, 2)


@pytest.mark.parametrize("kill", [False, True])
async def test_a_restart_reads_the_snapshot_and_the_records_after_it(tmp_path: Path, kill: bool) -> None:
    async with running(tmp_path, kill=kill) as controller:
        await join(controller, 1, 11)
        await controller.submit(topics("early", partitions=3))
        snapshot = store_of(controller).write_snapshot()
        await controller.submit(topics("late"))
        before = controller.image
    assert (tmp_path / METADATA / snapshot.file_name).exists()
    async with running(tmp_path) as controller:
        assert controller.image == (before if kill else fenced(before))


async def test_a_snapshot_without_a_log_restores_the_image(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        await join(controller, 1, 11)
        await controller.submit(topics("kept", partitions=3))
        await controller.fence_broker(1)
        store_of(controller).write_snapshot()
        before = controller.image
    for file in (tmp_path / METADATA).glob("00000000000000000000.*"):
        file.unlink()
    async with running(tmp_path) as controller:
        assert controller.image == before
        await join(controller, 1, 12)
        await controller.submit(topics("more"))
    async with running(tmp_path) as controller:
        assert sorted(controller.image.topics) == ["kept", "more"]


async def test_a_snapshot_is_due_when_the_log_is_much_longer_than_the_image(tmp_path: Path) -> None:
    async with running(tmp_path, snapshot_records=40) as controller:
        await join(controller, 1, 11)
        for turn in range(60):
            await controller.submit(topics(f"t{turn}"))
            await controller.submit(DeleteTopicsRequest(topic_names=[f"t{turn}"]))
        before = controller.image
    names = sorted(path.name for path in (tmp_path / METADATA).glob("*.checkpoint"))
    assert len(names) == 2
    async with running(tmp_path) as controller:
        assert controller.image == fenced(before)


@pytest.mark.parametrize("kill", [False, True])
async def test_a_long_log_begins_at_the_snapshot(tmp_path: Path, kill: bool) -> None:
    async with running(tmp_path, snapshot_records=40, max_log_bytes=2000, kill=kill) as controller:
        await join(controller, 1, 11)
        await controller.submit(topics("kept", partitions=3))
        for turn in range(60):
            await controller.submit(topics(f"t{turn}"))
            await controller.submit(DeleteTopicsRequest(topic_names=[f"t{turn}"]))
        before = controller.image
    segments = sorted(path.name for path in (tmp_path / METADATA).glob("*.log"))
    assert segments[0] > "00000000000000000000.log"
    async with running(tmp_path) as controller:
        assert controller.image == (before if kill else fenced(before))


async def test_snapshots_are_written_on_another_thread(tmp_path: Path) -> None:
    waiting: list[Callable[[], None]] = []

    def snapshots() -> list[str]:
        return sorted(path.name for path in (tmp_path / METADATA).glob("*.checkpoint"))

    async def change(turns: int) -> None:
        for turn in range(turns):
            await controller.submit(topics(f"t{turn}"))
            await controller.submit(DeleteTopicsRequest(topic_names=[f"t{turn}"]))

    async with running(tmp_path, snapshot_records=40, max_log_bytes=2000, start_disk_work=waiting.append) as controller:
        await join(controller, 1, 11)
        await change(60)
        assert snapshots() == []
        for work in waiting:
            work()
        assert len(snapshots()) == 1
        await change(1)
        assert sorted(path.name for path in (tmp_path / METADATA).glob("*.log"))[0] > f"{0:020d}.log"
        before = controller.image
    async with running(tmp_path) as controller:
        assert controller.image == fenced(before)


@pytest.mark.parametrize(
    ("call", "suffix", "event"),
    [
        ("replace_file", ".checkpoint", "metadata snapshot could not be written"),
        ("rename", ".log", "old metadata segments could not be removed"),
    ],
)
async def test_a_failed_snapshot_and_a_failed_removal_have_their_own_log_lines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, call: str, suffix: str, event: str
) -> None:
    disk = FailingDisk(tmp_path)
    disk.fail(errno.EIO, lambda name, path, _: name == call and METADATA in path and path.endswith(suffix))
    async with running(tmp_path, snapshot_records=40, max_log_bytes=2000, disk=disk) as controller:
        await join(controller, 1, 11)
        with suppress(LogOfflineError):  # the log goes offline when it cannot remove a segment
            for turn in range(60):
                await controller.submit(topics(f"t{turn}"))
                await controller.submit(DeleteTopicsRequest(topic_names=[f"t{turn}"]))
    events = {record.message.partition(" error=")[0] for record in caplog.records if record.levelname == "WARNING"}
    assert events == {event}


async def test_a_change_too_large_for_one_batch_is_a_metadata_transaction(tmp_path: Path) -> None:
    async with running(tmp_path, max_batch_bytes=2000, kill=True) as controller:
        await join(controller, 1, 11)
        before = controller.store.next_offset
        await controller.submit(topics("large", partitions=100))
        assert controller.store.next_offset == before + 1 + 100 + 2
        assert controller.image.offset == controller.store.next_offset - 1
        image = controller.image
    async with running(tmp_path) as controller:
        assert controller.image == image


async def test_a_disk_failure_loses_no_acknowledged_change(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path)
    async with running(tmp_path, disk=disk) as controller:
        await join(controller, 1, 11)
        await controller.submit(topics("before"))
        before = controller.image
        disk.fail(errno.ENOSPC, lambda name, path, _: name == "write" and METADATA in path)
        with pytest.raises(OSError, match="No space left"):
            await controller.submit(topics("never"))
        assert controller.image is before
        with pytest.raises(LogOfflineError):
            await controller.submit(topics("neither"))
        disk.heal()
    async with running(tmp_path) as controller:
        assert controller.image == before


async def test_a_failed_snapshot_does_not_stop_the_controller(tmp_path: Path) -> None:
    disk = FailingDisk(tmp_path)
    async with running(tmp_path, disk=disk, snapshot_records=10) as controller:
        await join(controller, 1, 11)
        disk.fail(errno.ENOSPC, lambda name, path, _: name == "replace_file" and path.endswith(".checkpoint"))
        for turn in range(30):
            await controller.submit(topics(f"t{turn}"))
            await controller.submit(DeleteTopicsRequest(topic_names=[f"t{turn}"]))
        assert not list((tmp_path / METADATA).glob("*.checkpoint"))
        disk.heal()
        for turn in range(30):
            await controller.submit(topics(f"t{turn}"))
            await controller.submit(DeleteTopicsRequest(topic_names=[f"t{turn}"]))
        assert list((tmp_path / METADATA).glob("*.checkpoint"))


async def test_a_restart_aborts_an_incomplete_metadata_transaction(tmp_path: Path) -> None:
    async with running(tmp_path, kill=True) as controller:
        image = controller.image
        await controller.store.append(
            [BeginTransactionRecord("half"), TopicRecord("never", Uuid(bytes(range(16))))], image.levels
        )
    for _ in range(2):
        async with running(tmp_path) as controller:
            assert controller.image.topics == {}
            await join(controller, 1, 12)
            await controller.submit(topics("after"))
            assert list(controller.image.topics) == ["after"]
            await controller.submit(DeleteTopicsRequest(topic_names=["after"]))


async def test_a_new_incarnation_of_a_broker_leads_in_a_new_epoch(tmp_path: Path) -> None:
    async with running(tmp_path, kill=True) as controller:
        await join(controller, 1, 11)
        await controller.submit(topics("t"))
        old = controller.image.brokers[1].epoch
    async with running(tmp_path) as controller:
        await join(controller, 1, 12)
        partition = controller.image.partition("t", 0)
        assert partition is not None
        assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 2)
        stale = await controller.submit(AllocateProducerIdsRequest(1, old))
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH


async def test_an_emulated_3_9_cluster_has_its_levels_also_after_a_restart(tmp_path: Path) -> None:
    for _ in range(2):
        async with running(tmp_path, emulation=Emulation.KAFKA_3_9) as controller:
            assert controller.image.levels == Emulation.KAFKA_3_9.initial
            await join(controller, 1, 11)


async def test_the_quorum_is_this_node_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as controller:
        request = DescribeQuorumRequest(
            [DescribeQuorumRequest.TopicData("__cluster_metadata", [DescribeQuorumRequest.PartitionData(0)])]
        )
        partition = (await controller.submit(request)).topics[0].partitions[0]
        assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 1, 10)
        assert [voter.replica_id for voter in partition.current_voters] == [1]
        request.topics[0].topic_name = "other"
        unknown = (await controller.submit(request)).topics[0].partitions[0]
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_unknown_version_of_quorum_state_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    state = tmp_path / METADATA / "quorum-state"
    state.write_text('{"leaderId":1,"leaderEpoch":1,"data_version":2}')
    with pytest.raises(InvalidMetadataError, match="data version 2"):
        async with running(tmp_path):
            pass
    assert state.read_text() == '{"leaderId":1,"leaderEpoch":1,"data_version":2}'


async def test_a_directory_of_kafka_4_3_opens(tmp_path: Path) -> None:
    unpack(KAFKA_DIRECTORY, tmp_path)
    async with running(tmp_path) as controller:
        image = controller.image
        assert sorted((topic.name, len(topic.partitions)) for topic in image.topics.values()) == [
            ("one", 1),
            ("two", 3),
        ]
        assert image.topic_configs("two") == {"retention.ms": "3600000"}
        assert image.levels == Emulation.KAFKA_4_3.initial
        assert list(image.controllers) == [1]
        await join(controller, 1, 99)
        leaders = {partition.leader for topic in controller.image.topics.values() for partition in topic.partitions}
        assert leaders == {1}


async def test_a_directory_of_kafka_3_9_opens_at_its_own_levels(tmp_path: Path) -> None:
    unpack(KAFKA_DIRECTORY.with_name("kafka-3.9.1-data.tar.xz"), tmp_path)
    async with running(tmp_path) as controller:
        assert controller.image.levels == Emulation.KAFKA_3_9.initial
        assert controller.image.security.zk_migration_state == 0
        await join(controller, 1, 99)
        await controller.submit(topics("t"))
        image = controller.image
    async with running(tmp_path) as controller:
        assert controller.image == fenced(image)


async def test_voters_in_the_log_stay_there(tmp_path: Path) -> None:
    unpack(DYNAMIC_DIRECTORY, tmp_path)
    async with running(tmp_path) as controller:
        assert sorted(controller.image.topics) == ["dyn", "dyn2"]
        voters = controller.store.quorum().voters
        assert [(voter.id, uuid_to_text(voter.directory_id)) for voter in voters] == [(1, "SmbLhAWkSYeM6ZFE2H16fg")]
        snapshot = store_of(controller).write_snapshot()
    path = tmp_path / METADATA / snapshot.file_name
    _, kept = decode_snapshot(path.read_bytes(), path.name)
    assert kept.version == KRaftVersionRecord(0, 1)
    assert kept.voters is not None
    assert [voter.voter_id for voter in kept.voters.voters] == [1]
    assert json.loads((tmp_path / METADATA / "quorum-state").read_text())["data_version"] == 1


async def test_the_directory_of_a_quorum_with_several_voters_is_refused(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    state = tmp_path / METADATA / "quorum-state"
    state.write_text(state.read_text().replace('[{"voterId":1}]', '[{"voterId":1},{"voterId":2}]'))
    with pytest.raises(InvalidMetadataError, match="a quorum of the controllers 1, 2"):
        async with running(tmp_path):
            pass
