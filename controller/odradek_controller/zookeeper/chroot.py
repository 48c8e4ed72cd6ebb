"""The chroot of a cluster: the znode, named in the connect string, below which the cluster has its znodes."""

from __future__ import annotations

from typing import NamedTuple


class Chroot(NamedTuple):
    """The prefix of every path of the cluster: "" or "/a" or "/a/b"."""

    prefix: str = ""

    def absolute(self, path: str) -> str:
        """Return the server's path for a path below the chroot."""
        assert path.startswith("/"), path
        return path if not self.prefix else self.prefix if path == "/" else self.prefix + path

    def relative(self, path: str) -> str:
        """Return the path below the chroot for a path of the server."""
        return path[len(self.prefix) :] or "/"

    def nodes(self) -> list[str]:
        """Return the server's paths of the chroot and its parents, from the top."""
        names = self.prefix.split("/")
        return ["/".join(names[: end + 1]) for end in range(1, len(names))]


def parse_connect_string(text: str) -> tuple[str, Chroot]:
    """Split `HOST:PORT,HOST:PORT/chroot` into the servers and the chroot; `/` alone is no chroot. Raises ValueError."""
    servers, slash, chroot = text.strip().partition("/")
    if not servers:
        raise ValueError(f"the ZooKeeper connect string {text!r} names no server, such as localhost:2181")
    if not chroot:
        return servers, Chroot()
    if "" in chroot.split("/"):
        raise ValueError(f"the ZooKeeper connect string {text!r} has an invalid chroot: {slash + chroot}")
    return servers, Chroot(slash + chroot)
