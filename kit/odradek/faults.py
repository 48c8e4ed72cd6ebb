"""Faults that a test injects: the broker delays or fails requests, drops responses, or closes connections."""

from __future__ import annotations

from typing import Literal, get_args

from odradek.hosts.host import Fault, Host
from odradek_wire.apis import APIS
from odradek_wire.errors import ErrorCode

When = Literal["request", "response"]

_NAMES = {api.name for api in APIS.values()}


class Faults:
    """The faults of one cluster, as `Cluster.faults`. The first fault that matches a request applies.

    - `api` is Kafka's name of the API, such as `"Produce"` or `"Fetch"`.
    - `when="request"` applies the fault before the broker handles the request, `when="response"` after it has handled
      the request: `faults.drop("Produce", when="response")` loses an acknowledgement.
    - `times` is the number of requests that each broker applies the fault to; None applies it to all.
    - `client_id` limits the fault to one client, `broker` to one broker. Brokers are clients, too: broker 2 fetches
      from partition leaders as the client `"broker-2-fetcher-0"`.

    Faults survive `Cluster.stop`, `Cluster.kill` and `Cluster.start`; `Cluster.reset` clears them.

    Each method raises ValueError for an unknown API or error, for `times` below 1 and for a negative delay. For a
    cluster with `process=True` it also raises TimeoutError when the child process does not respond within 60 s, and
    BrokerProcessError when it has exited.
    """

    def __init__(self, host: Host) -> None:
        self._host = host

    def delay(
        self,
        api: str,
        ms: int,
        *,
        when: When = "request",
        times: int | None = None,
        client_id: str | None = None,
        broker: int | None = None,
    ) -> None:
        """Delay each matching request, or its response, by `ms` on the clock of timeouts. Raises as `Faults` says."""
        if ms < 0:
            raise ValueError(f"ms must be at least 0, got {ms}")
        self._add(Fault("delay", when, api, times, client_id, delay_ms=ms, broker=broker))

    def error(
        self,
        api: str,
        error: ErrorCode | str,
        *,
        when: When = "request",
        times: int | None = None,
        client_id: str | None = None,
        broker: int | None = None,
    ) -> None:
        """Return `error` for the whole request: an ErrorCode, or its name (`"NOT_LEADER_OR_FOLLOWER"`). Raises as
        `Faults` says."""
        try:
            code = ErrorCode[error] if isinstance(error, str) else ErrorCode(error)
        except (KeyError, ValueError):
            raise ValueError(
                f"error must be one of Kafka's error codes, such as 'NOT_LEADER_OR_FOLLOWER', got {error!r}"
            ) from None
        self._add(Fault("error", when, api, times, client_id, error_code=int(code), broker=broker))

    def drop(
        self,
        api: str,
        *,
        when: When,
        times: int | None = None,
        client_id: str | None = None,
        broker: int | None = None,
    ) -> None:
        """Never respond, so that the request times out in the client. Raises as `Faults` says.

        The broker responds to later requests of the connection. A Java client expects responses in the order of its
        requests, so it closes the connection at the next response; librdkafka lets only the one request time out.
        """
        self._add(Fault("drop", when, api, times, client_id, broker=broker))

    def disconnect(
        self,
        api: str,
        *,
        when: When,
        times: int | None = None,
        client_id: str | None = None,
        broker: int | None = None,
    ) -> None:
        """Close the connection in place of a response. Raises as `Faults` says."""
        self._add(Fault("disconnect", when, api, times, client_id, broker=broker))

    def clear(self) -> None:
        """Remove all faults. With `process=True`: raises TimeoutError and BrokerProcessError as `Faults` says."""
        self._host.clear_faults()

    def _add(self, fault: Fault) -> None:
        if fault.api not in _NAMES:
            raise ValueError(f"api must be the name of a Kafka API, such as 'Produce', got {fault.api!r}")
        if fault.when not in get_args(When):
            raise ValueError(f"when must be 'request' or 'response', got {fault.when!r}")
        if fault.times is not None and fault.times < 1:
            raise ValueError(f"times must be at least 1, got {fault.times}")
        self._host.add_fault(fault)
