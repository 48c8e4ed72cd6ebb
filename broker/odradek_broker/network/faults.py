"""The effects of interceptors' verdicts on requests: delay, error, no response, disconnection.

Owns the effect of each verdict, before the handler and after it. Leaves the verdicts to `interceptors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from odradek_broker.network.interceptors import Delay, Disconnect, Drop, Fail, Verdict

if TYPE_CHECKING:
    from odradek_broker.network.exchange import Exchange


def apply_before_handler(exchange: Exchange, verdict: Verdict) -> None:
    """Apply a verdict to a request instead of calling its handler."""
    match verdict:
        case Delay():
            exchange.connection.busy = True
            exchange.ctx.broker.timers.call_later(verdict.delay_ms, exchange.handle)
        case Fail():
            exchange.respond_with(verdict.error)
        case Drop():
            exchange.connection.done()
        case Disconnect():
            exchange.connection.close()
        case _:
            assert_never(verdict)


def apply_before_write(exchange: Exchange, response: Any, verdict: Verdict) -> None:
    """Apply a verdict to a request instead of writing `response`, the result of its handler."""
    match verdict:
        case Delay():
            exchange.connection.busy = True
            exchange.ctx.broker.timers.call_later(verdict.delay_ms, lambda: exchange.write(response))
        case Fail():
            failure = exchange.route.failure(exchange.ctx, exchange.request, verdict.error)
            if failure is None:
                exchange.connection.close()
            else:
                exchange.write(failure)
        case Drop():
            exchange.connection.done()
        case Disconnect():
            exchange.connection.close()
        case _:
            assert_never(verdict)
