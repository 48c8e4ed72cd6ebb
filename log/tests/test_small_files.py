"""Checkpoints, meta.properties, partition.metadata, and the names of files and directories."""

from __future__ import annotations

from pathlib import Path

import pytest
from log.tests.log_kit import TOPIC_ID

from odradek_log import file_names, partition_metadata
from odradek_log.checkpoints import read_offsets, write_offsets
from odradek_log.disk import RealDisk
from odradek_log.log_errors import CorruptLogError, LogDirectoryError
from odradek_log.meta_properties import MetaProperties
from odradek_wire.uuid import uuid_from_text

DISK = RealDisk()


def test_an_offset_checkpoint_has_kafkas_format(tmp_path: Path) -> None:
    path = str(tmp_path / "c")
    offsets = {("a-b.c", 0): 5, ("t", 11): 1 << 40}
    write_offsets(DISK, path, offsets)
    assert Path(path).read_bytes() == b"0\n2\na-b.c 0 5\nt 11 1099511627776\n"
    assert read_offsets(DISK, path) == offsets
    assert list(tmp_path.iterdir()) == [Path(path)]


def test_a_missing_or_empty_checkpoint_has_no_entry(tmp_path: Path) -> None:
    assert read_offsets(DISK, str(tmp_path / "none")) == {}
    (tmp_path / "empty").touch()
    assert read_offsets(DISK, str(tmp_path / "empty")) == {}


@pytest.mark.parametrize("text", [b"7\n0\n", b"0\n", b"0\n2\nt 0 1\n", b"0\n1\nt 0\n", b"0\n1\nt x 1\n", b"0\nmany\n"])
def test_a_damaged_checkpoint_is_corrupt(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "c").write_bytes(text)
    with pytest.raises(CorruptLogError):
        read_offsets(DISK, str(tmp_path / "c"))


# As Apache Kafka wrote them (4.3.0 in KRaft mode, 3.9.1 in ZooKeeper mode).
_VERSION_1 = (
    b"#\n#Sat Nov 21 06:58:55 UTC 2026\nnode.id=1\ndirectory.id=JH-I1UZrHSsnDG4EPlS_fw\nversion=1\n"
    b"cluster.id=vtqsek0OQQa9tNHwCWYIAQ\n"
)
_VERSION_0 = b"#\n#Sat Nov 21 06:58:55 UTC 2026\nbroker.id=3\nversion=0\ncluster.id=vtqsek0OQQa9tNHwCWYIAQ\n"


def test_meta_properties_are_read_and_written_as_kafka_does() -> None:
    directory_id = uuid_from_text("JH-I1UZrHSsnDG4EPlS_fw")
    meta = MetaProperties(1, "vtqsek0OQQa9tNHwCWYIAQ", 1, directory_id)
    assert MetaProperties.decode(_VERSION_1, "m") == meta
    assert meta.encode(1_795_244_335_000) == _VERSION_1
    old = MetaProperties(0, "vtqsek0OQQa9tNHwCWYIAQ", 3)
    assert MetaProperties.decode(_VERSION_0, "m") == old
    assert old.encode(1_795_244_335_000) == _VERSION_0


def test_escapes_and_comments_of_java_properties_are_read() -> None:
    text = b"! comment\n  version = 1 \nnode.id:7\ncluster.id=a\\:b\\=c\nunknown=1\n"
    assert MetaProperties.decode(text, "m") == MetaProperties(1, "a:b=c", 7)


@pytest.mark.parametrize("text", [b"version=2\nnode.id=1\n", b"node.id=1\n", b"version=1\nnode.id=x\n", b""])
def test_unknown_meta_properties_are_rejected(text: bytes) -> None:
    with pytest.raises(LogDirectoryError):
        MetaProperties.decode(text, "m")


def test_partition_metadata_has_two_lines_and_no_last_newline() -> None:
    data = partition_metadata.encode(TOPIC_ID)
    assert data == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert partition_metadata.decode(data, "p") == TOPIC_ID
    assert partition_metadata.decode(data + b"\n", "p") == TOPIC_ID


@pytest.mark.parametrize(
    "text", [b"", b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", b"version: 0\n", b"version: 0\ntopic_id: AAAA",
             b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"]
)  # fmt: skip
def test_partition_metadata_without_a_topic_id_is_corrupt(text: bytes) -> None:
    with pytest.raises(CorruptLogError):
        partition_metadata.decode(text, "p")


_HEX = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("t-0", ("t", 0, "")),
        ("a-b-12", ("a-b", 12, "")),
        (f"a.b-3.{_HEX}-delete", ("a.b", 3, "-delete")),
        (f"t-0.{_HEX}-stray", ("t", 0, "-stray")),
        (f"t-0.{_HEX}-future", ("t", 0, "-future")),
        ("t", None),
        ("-1", None),
        ("t-x", None),
        ("t-0.1-delete", None),
    ],
)
def test_names_of_partition_directories_are_parsed(name: str, parsed: tuple[str, int, str] | None) -> None:
    assert file_names.parse_dir(name) == parsed


def test_the_name_of_a_deleted_directory_fits_into_a_file_system() -> None:
    name = file_names.suffixed_dir("t" * 249, 10, _HEX, "-delete")
    assert len(name) == 255
    assert file_names.parse_dir(name) == ("t" * 212, 10, "-delete")


def test_segment_names_have_twenty_digits() -> None:
    assert file_names.segment_name(368769, ".log") == "00000000000000368769.log"
    assert file_names.offset_of("00000000000000368769.log.deleted") == 368769
    assert file_names.offset_of("leader-epoch-checkpoint") is None
