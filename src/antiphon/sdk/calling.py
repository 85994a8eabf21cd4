"""Calls on their way to the log, through a breaker: nobody waits for an engine that is away.

Only silence counts against the engine. A call that it refused, or that the mesh's rules refused,
was answered. Once the engine can be reached again, calls are made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antiphon.core.breaker import Breaker
from antiphon.core.families.jobs.ops import ScheduleBody
from antiphon.errors import AntiphonError, CircuitOpen, EngineDenied, Unavailable
from antiphon.runtime import client
from antiphon.sdk.handles import JobHandle

if TYPE_CHECKING:
    from antiphon.runtime.peer import Peer


async def call_through(breaker: Breaker | None, peer: Peer, body: ScheduleBody) -> JobHandle[Any]:
    """Put a job on the log; `CircuitOpen` at once while the breaker is open. None: always try."""
    if breaker is None:
        return _handle(peer, await client.call(peer, body))
    now_s = peer.wall.boot_s
    given = breaker.ask(now_s(), line=peer.engine.reconnects)
    if given is None:
        raise _paused(breaker, now_s())
    try:
        called = await client.call(peer, body)
    except EngineDenied:
        breaker.succeeded(given)
        raise
    except Unavailable:
        breaker.failed(given, now_s())
        raise
    except AntiphonError:
        breaker.succeeded(given)
        raise
    except BaseException:
        breaker.abandoned(given)
        raise
    breaker.succeeded(given)
    return _handle(peer, called)


def _handle(peer: Peer, called: client.Called) -> JobHandle[Any]:
    return JobHandle(peer, called.kind, called.job, is_new=called.is_new)


def _paused(breaker: Breaker, now_s: float) -> CircuitOpen:
    wait_s = breaker.wait_s(now_s)
    when = f"it will be tried again in {wait_s:.0f} s" if wait_s >= 1 else "it is being tried again"
    return CircuitOpen(
        f"the engine left {breaker.failures} calls in a row unanswered; {when}",
        retry_s=wait_s,
        hint="'antiphon doctor' says what is wrong; ANTIPHON_BREAKER=off tries every call",
    )
