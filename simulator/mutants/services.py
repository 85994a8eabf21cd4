"""Bugs in what services do for members: whose it is, and how much, is not asked."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, Final

from msgspec.structs import replace

from antiphon.core.clock.hlc import MAX_WALL
from antiphon.core.derivations.offer_derivation import (
    Derived,
    MayRead,
    Waiter,
    derive_in_steps,
)
from antiphon.core.families.jobs import table as job_table
from antiphon.core.families.jobs.ops import CancelBody
from antiphon.core.families.plans import table as plan_table
from antiphon.runtime.coordinator import predecessors
from antiphon.runtime.plans.cron_ticks import CronTicks
from simulator.patch import patched

LAST_SECOND_MS: Final = 253_402_300_799_000
"""The end of the year 9999."""


@contextmanager
def readers_unasked() -> Iterator[None]:
    """The coordinator reads other jobs for whoever waits for them."""
    with patched(Waiter, "unread_kind", lambda *_: None):
        yield


@contextmanager
def workers_unasked() -> Iterator[None]:
    """It asks what a job's submitter may read, and not what the worker may that gave it back."""
    really = Waiter.unread_kind

    def unread_kind(self: Waiter, may_read: MayRead) -> tuple[str, str] | None:
        return really(replace(self, yielded_by=""), may_read)

    with patched(Waiter, "unread_kind", unread_kind):
        yield


@contextmanager
def asked_too_late() -> Iterator[None]:
    """It asks who may read a job only after it has said why another cannot begin."""

    def derive(
        waiter: Waiter, manifest: Any, find: Any, look: Any, may_read: MayRead
    ) -> Generator[None, None, Derived | None]:
        told = yield from derive_in_steps(waiter, manifest, find, look, lambda *_: True)
        if told is not None and isinstance(told.body, CancelBody):
            return told
        return (yield from derive_in_steps(waiter, manifest, find, look, may_read))

    with patched(predecessors, "derive_in_steps", derive):
        yield


@contextmanager
def calendars_endless() -> Iterator[None]:
    """Plans may begin at any time, and a time that no calendar has is an error in a service."""
    really = CronTicks.after

    def after(self: CronTicks, after_ms: int) -> Iterator[int]:
        if after_ms > LAST_SECOND_MS:
            raise OverflowError("date value out of range")
        return really(self, after_ms)

    with patched(plan_table, "LATEST_BEGIN_MS", MAX_WALL), patched(CronTicks, "after", after):
        yield


@contextmanager
def repeats_accepted() -> Iterator[None]:
    """A job may be given back for one job as often as a list has room."""
    with patched(job_table, "_names_twice", lambda _: False):
        yield


MUTANTS: Final = (
    readers_unasked,
    workers_unasked,
    asked_too_late,
    calendars_endless,
    repeats_accepted,
)
