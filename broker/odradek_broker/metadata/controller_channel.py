"""The controller channel: how a broker sends requests to the controller of its cluster, wherever that is.

One implementation for each kind of cluster: with the embedded controller (`odradek_controller.controller.Controller`)
and over ZooKeeper (`zookeeper.controller_channel`). A KRaft quorum would be a third.
"""

from __future__ import annotations

from typing import Any, Protocol

from odradek_controller.principal import Principal
from odradek_wire.message import Message


class ControllerChannel(Protocol):
    """Sends one request to the controller and returns its response."""

    async def submit(self, request: Message, principal: Principal | None = None) -> Any:
        """Return the response, whose class is the response class of the request's API.

        `principal` is the client's when a client sent the request, and None for a request of this broker itself.
        Raises NotControllerError if the controller is another broker and the client has to send the request there.
        """
        ...
