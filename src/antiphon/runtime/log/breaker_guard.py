"""The circuit breaker around what a process asks of its engine (spec §10).

A session has one breaker. Submitting, taking and releasing locks, writing documents and sending
messages share it, and so does connecting: they all wait for the same engine. Renewals of leases and
locks are not paused: they have a pace of their own, and a renewal that is skipped is a loss.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from antiphon.errors import (
    AntiphonError,
    CircuitOpen,
    EngineDenied,
    InboxFull,
    RateLimited,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antiphon.core.policy.circuit_breaker import CircuitBreaker
    from antiphon.runtime.log.session import Session


@contextmanager
def guarded(session: Session) -> Iterator[None]:
    """One request to a session's engine: `CircuitOpen` at once while its breaker is open.

    Do not nest it: the outer one may be the only request that is allowed.
    """
    line = session.engine.reconnects
    with guarding(session.breaker, session.wall.boot_s, line=line):
        yield


@contextmanager
def guarding(
    breaker: CircuitBreaker | None, now_s: Callable[[], float], *, line: int = 0
) -> Iterator[None]:
    """Ask a breaker first, and tell it how the request ended. None: every request is tried.

    Only a missing answer counts against the engine: a refusal is an answer, whether the engine,
    the receiver or the mesh's rules refused.
    """
    if breaker is None:
        yield
        return
    given = breaker.ask(now_s(), line=line)
    if given is None:
        raise _paused(breaker, now_s())
    try:
        yield
    except (EngineDenied, InboxFull, RateLimited):
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


def _paused(breaker: CircuitBreaker, now_s: float) -> CircuitOpen:
    wait_s = breaker.wait_s(now_s)
    when = f"it will be tried again in {wait_s:.0f} s" if wait_s >= 1 else "it is being tried again"
    return CircuitOpen(
        f"the engine did not answer {breaker.failures} requests in a row; {when}",
        retry_s=wait_s,
        hint="run 'antiphon doctor'; ANTIPHON_BREAKER=off tries every request",
    )
