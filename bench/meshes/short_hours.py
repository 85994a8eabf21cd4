"""Meshes whose retention is some seconds, so that a run sees many hours of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from antiphon.core.authority import rules as mesh_rules
from antiphon.core.authority.rules import Rules
from antiphon.runtime.log import session as log_session


@contextmanager
def short_hours() -> Iterator[None]:
    """In this process, rules may have a retention that no mesh may have.

    Afterwards not any more: a process that runs tests has others to run.
    """
    least_ms = mesh_rules.RETENTION_LEAST_MS
    _allow(1)
    try:
        yield
    finally:
        _allow(least_ms)


def _allow(least_ms: int) -> None:
    for module in (mesh_rules, log_session):
        setattr(module, "RETENTION_LEAST_MS", least_ms)  # noqa: B010 - a constant


def short_rules(hour_s: float) -> Rules:
    """An open mesh that keeps what has ended for one such hour."""
    return Rules(authority="open", retention_ms=round(hour_s * 1000), max_drift_ms=200)
