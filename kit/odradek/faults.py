"""Faults by order: what a test tells the broker to do wrong, to which requests, how often."""

from __future__ import annotations

from typing import Literal

from odradek.hosts.host import Fault, Host
from odradek_wire.apis import APIS
from odradek_wire.errors import ErrorCode

When = Literal["request", "response"]

_NAMES = {api.name for api in APIS.values()}


class Faults:
    """Rules are tried in the order in which they were made; the first that fits decides.

    `api` is Kafka's name (`"Produce"`, `"Fetch"`, …), `times` bounds how many requests a rule meets at each broker,
    `client_id` whose, `broker` at which. The brokers of a cluster are clients of each other, too: broker 2 fetches from
    leaders as `"broker-2-fetcher-0"`.
    With `when="request"` the broker has not done what it was asked to, with `"response"` it has: an acknowledgement
    that is lost is `faults.drop("Produce", when="response")`.
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
        """Wait `ms` on the clock of timeouts before going on."""
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
        """Answer the whole request with one of Kafka's errors, by name or code (`"NOT_LEADER_OR_FOLLOWER"`)."""
        code = ErrorCode[error] if isinstance(error, str) else error
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
        """Never answer: the client runs into its timeout.

        Later requests of the connection are answered, so that a Java client, which takes answers in the order of its
        requests only, closes the connection at the next one, while librdkafka lets the one request time out."""
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
        """Close the connection instead of answering."""
        self._add(Fault("disconnect", when, api, times, client_id, broker=broker))

    def clear(self) -> None:
        """All is well again."""
        self._host.clear_faults()

    def _add(self, rule: Fault) -> None:
        if rule.api not in _NAMES:
            raise ValueError(f"{rule.api!r} is not the name of a Kafka API, such as 'Produce'")
        if rule.times is not None and rule.times < 1:
            raise ValueError("a rule that meets no request does nothing")
        self._host.add_fault(rule)
