"""The part of ZooKeeper's tree that a cluster keeps to itself, at the end of the connect string."""

from __future__ import annotations

from typing import NamedTuple


class Chroot(NamedTuple):
    """A prefix of every path: "" or "/a" or "/a/b"."""

    prefix: str = ""

    def absolute(self, path: str) -> str:
        """The server's path of ours."""
        assert path.startswith("/"), path
        return path if not self.prefix else self.prefix if path == "/" else self.prefix + path

    def relative(self, path: str) -> str:
        """Our path of the server's."""
        return path[len(self.prefix) :] or "/"

    def nodes(self) -> list[str]:
        """The nodes that must be there for it to be used, from the top, in the server's paths."""
        names = self.prefix.split("/")
        return ["/".join(names[: end + 1]) for end in range(1, len(names))]


def parse_connect_string(text: str) -> tuple[str, Chroot]:
    """`HOST:PORT,HOST:PORT/chroot` as the servers and the chroot; a lone slash is none. Raises ValueError."""
    servers, slash, chroot = text.strip().partition("/")
    if not servers:
        raise ValueError(f"no server in the ZooKeeper connect string {text!r}")
    if not chroot:
        return servers, Chroot()
    if "" in chroot.split("/"):
        raise ValueError(f"not a chroot in the ZooKeeper connect string {text!r}: {slash + chroot}")
    return servers, Chroot(slash + chroot)
