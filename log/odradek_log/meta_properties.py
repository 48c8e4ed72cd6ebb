"""`meta.properties`: the identity of a log directory (MetaProperties, versions 0 and 1).

Version 0 is that of ZooKeeper mode (`broker.id`), version 1 that of KRaft (`node.id`). A newer version is rejected.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from odradek_log.log_errors import LogDirectoryError
from odradek_wire.uuid import Uuid, uuid_from_text, uuid_to_text

_LINE = re.compile(r"((?:[^\\=:\s]|\\.)+)\s*[=:\s]\s*(.*)")


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The identity of a log directory."""

    version: int
    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None = None

    def encode(self, now_ms: int) -> bytes:
        """Return the text of the file, with the date that Java's Properties write first."""
        date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms // 1000))
        properties = {
            "node.id" if self.version else "broker.id": self.node_id,
            "directory.id": uuid_to_text(self.directory_id) if self.directory_id else None,
            "version": self.version,
            "cluster.id": self.cluster_id,
        }
        lines = [f"{name}={value}" for name, value in properties.items() if value is not None]
        return "\n".join(["#", f"#{date}", *lines, ""]).encode()

    @classmethod
    def decode(cls, data: bytes, path: str) -> MetaProperties:
        """Parse the file. Raises LogDirectoryError for an unknown version or invalid content."""
        properties = {}
        for line in data.decode("latin-1").splitlines():
            if line.strip() and not line.lstrip().startswith(("#", "!")):
                match = _LINE.match(line.strip())
                if match:
                    properties[match[1].replace("\\", "")] = match[2].replace("\\", "")
        version = properties.get("version", "")
        if version not in ("0", "1"):
            raise LogDirectoryError(
                f"{path}: version {version or '(none)'}, expected 0 or 1; the file is left unchanged"
            )
        try:
            node_id = properties.get("broker.id" if version == "0" else "node.id")
            directory_id = properties.get("directory.id")
            return cls(
                int(version),
                properties.get("cluster.id"),
                int(node_id) if node_id is not None else None,
                uuid_from_text(directory_id) if directory_id else None,
            )
        except ValueError as error:
            raise LogDirectoryError(f"{path}: {error}") from None
