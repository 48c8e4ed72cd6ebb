"""Settings: their sources, precedence, refusals and warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.settings import (
    Settings,
    SettingsError,
    SettingWarning,
    environment_variable,
    from_environment,
    gather,
    read_properties,
)


def test_overrides_win_over_the_environment_which_wins_over_a_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.segment.bytes=1048576\nmessage.max.bytes=1000\n")
    environment = {"KAFKA_NUM_PARTITIONS": "3", "KAFKA_MESSAGE_MAX_BYTES": "2000", "PATH": "/bin"}
    settings = gather(file=file, environment=environment, overrides={"num.partitions": 4})
    assert settings == Settings(
        {"log.segment.bytes": "1048576", "message.max.bytes": "2000", "num.partitions": "4"}, ()
    )


def test_python_values_become_kafkas_text() -> None:
    settings = gather(overrides={"auto.create.topics.enable": False, "log.cleanup.policy": ["compact", "delete"]})
    assert settings.values == {"auto.create.topics.enable": "false", "log.cleanup.policy": "compact,delete"}


def test_an_unknown_override_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(SettingsError, match=r"^unknown setting num\.partitons; did you mean num\.partitions\?$"):
        gather(overrides={"num.partitons": 3})


def test_a_removed_override_is_refused_with_the_reason() -> None:
    with pytest.raises(SettingsError, match=r"^Kafka removed zookeeper\.connect: "):
        gather(overrides={"zookeeper.connect": "localhost:2181"})


def test_a_bad_value_is_refused_in_kafkas_words() -> None:
    with pytest.raises(SettingsError, match=r"Invalid value many for configuration num\.partitions: Not a number"):
        gather(overrides={"num.partitions": "many"})
    with pytest.raises(SettingsError, match=r"odradek\.validation must be header or strict, got 'lax'"):
        gather(overrides={"odradek.validation": "lax"})


def test_the_environment_names_the_cluster_without_a_prefix() -> None:
    settings = gather(environment={"CLUSTER_ID": "4L6g3nShT-eMCtK--X86sw", "KAFKA_CLUSTER_ID": "another"})
    assert settings == Settings({"cluster.id": "4L6g3nShT-eMCtK--X86sw"}, ())


def test_unknown_names_in_a_file_and_the_environment_are_warnings(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitons=2\nlog.message.format.version=3.0\n")
    settings = gather(file=file, environment={"KAFKA_HEAP_OPTS": "-Xmx1G", "KAFKA_NO_SUCH_THING": "1"})
    assert settings == Settings(
        {},
        (
            SettingWarning(
                "setting is ignored",
                "log.message.format.version",
                "Kafka removed it: Kafka 4 writes record batches of format 2 only",
            ),
            SettingWarning("setting is ignored", "no.such.thing", "Kafka does not have it"),
            SettingWarning(
                "setting is ignored", "num.partitons", "Kafka does not have it; did you mean num.partitions?"
            ),
        ),
    )


def test_a_known_setting_without_effect_is_a_warning() -> None:
    assert gather(overrides={"ssl.protocol": "TLSv1.3"}).warnings == (
        SettingWarning("setting has no effect", "ssl.protocol"),
    )


def test_a_quorum_of_several_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"controller\.quorum\.voters must name one controller, got 1@a"):
        gather(environment={"KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9093,2@b:9093"})


def test_a_properties_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# a comment\n! another\n\n  a=1\nb : 2\nc 3\nd\\ e=x\\=y\nlong = one,\\\n   two\ntabs\t=\tv\nempty=\n"
        "unicode=\\u00e9\nback=c:\\\\temp\n"
    )
    assert read_properties(file) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d e": "x=y",
        "long": "one,two",
        "tabs": "v",
        "empty": "",
        "unicode": "é",
        "back": "c:\\temp",
    }


def test_an_unreadable_file_is_a_one_line_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"^cannot read .*/missing: No such file or directory$"):
        read_properties(tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match=r"^cannot read .*/binary: it is not UTF-8 text$"):
        read_properties(tmp_path / "binary")


@pytest.mark.parametrize("name", ["log.dirs", "listener.name.a-b.x_y", "a"])
def test_a_setting_survives_its_way_through_the_environment(name: str) -> None:
    assert from_environment({environment_variable(name): "v"}) == {name: "v"}
