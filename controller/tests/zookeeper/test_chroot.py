"""The connect string, as zookeeper.connect has it."""

from __future__ import annotations

import pytest

from odradek_controller.zookeeper.chroot import Chroot, parse_connect_string


@pytest.mark.parametrize(
    ("text", "servers", "prefix"),
    [
        ("one:2181", "one:2181", ""),
        ("one:2181/", "one:2181", ""),
        (" one:2181,[::1]:2182/kafka ", "one:2181,[::1]:2182", "/kafka"),
        ("one,two/a/b", "one,two", "/a/b"),
    ],
)
def test_servers_come_before_the_chroot(text: str, servers: str, prefix: str) -> None:
    assert parse_connect_string(text) == (servers, Chroot(prefix))


@pytest.mark.parametrize("text", ["", "/kafka", "one:2181//", "one:2181/a/", "one:2181/a//b"])
def test_an_invalid_connect_string_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ZooKeeper connect string"):
        parse_connect_string(text)


def test_paths_go_below_the_chroot_and_come_back() -> None:
    chroot = Chroot("/a/b")

    assert [chroot.absolute(path) for path in ("/", "/x/y")] == ["/a/b", "/a/b/x/y"]
    assert [chroot.relative(path) for path in ("/a/b", "/a/b/x/y")] == ["/", "/x/y"]
    assert [Chroot().absolute(path) for path in ("/", "/x")] == ["/", "/x"]
    assert [Chroot().relative(path) for path in ("/", "/x")] == ["/", "/x"]


def test_the_znodes_of_a_chroot_start_with_its_parents() -> None:
    assert Chroot("/a/b/c").nodes() == ["/a", "/a/b", "/a/b/c"]
    assert Chroot().nodes() == []
