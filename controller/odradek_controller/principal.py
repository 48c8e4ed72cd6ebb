"""The principal of a request: the identity that a listener has authenticated."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """Kafka's KafkaPrincipal, written `User:name`."""

    principal_type: str
    name: str

    def __str__(self) -> str:
        return f"{self.principal_type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""The principal of every request on a listener without authentication."""
