"""Faults as interceptors of a running broker."""

from __future__ import annotations

from typing import Any

from odradek.hosts.host import Fault
from odradek_broker.apis.context import Context
from odradek_broker.network.interceptors import Delay, Disconnect, Drop, Fail, Interceptors, Verdict
from odradek_wire.apis import APIS
from odradek_wire.errors import ErrorCode

_KEYS = {api.name: api.key for api in APIS.values()}


class _FaultInterceptor:
    """Applies one fault to the requests that match it, and counts them."""

    def __init__(self, fault: Fault) -> None:
        self._key = _KEYS[fault.api]
        self._client_id = fault.client_id
        self._left = fault.times
        self._verdict = _verdict(fault)

    def on_request(self, ctx: Context, request: Any) -> Verdict | None:
        return self._verdict_on(ctx)

    def on_response(self, ctx: Context, request: Any, response: Any) -> Verdict | None:
        return self._verdict_on(ctx)

    def _verdict_on(self, ctx: Context) -> Verdict | None:
        if ctx.api_key != self._key or self._client_id not in (None, ctx.client_id) or self._left == 0:
            return None
        if self._left is not None:
            self._left -= 1
        return self._verdict


def add(fault: Fault, interceptors: Interceptors) -> None:
    """Add a fault; faults that were added before it apply first."""
    interceptor = _FaultInterceptor(fault)
    if fault.when == "request":
        interceptors.before_handle.append(interceptor.on_request)
    else:
        interceptors.before_write.append(interceptor.on_response)


def clear(interceptors: Interceptors) -> None:
    """Remove all faults."""
    interceptors.before_handle.clear()
    interceptors.before_write.clear()


def _verdict(fault: Fault) -> Verdict:
    match fault.action:
        case "delay":
            return Delay(fault.delay_ms)
        case "error":
            return Fail(ErrorCode(fault.error_code))
        case "drop":
            return Drop()
        case "disconnect":
            return Disconnect()
