"""Deliberate bugs of archives and purges: each must be noticed by a law of the simulated log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from antiphon.core import lane_archive, manifest
from antiphon.core.derivations import purge_plan
from antiphon.core.families.jobs import planned
from antiphon.runtime.log.lane_reader import LaneReader
from antiphon.runtime.log.session import Session
from simulator.archive.archive_world import ArchiveWorld
from simulator.patch import patched


@contextmanager
def archive_forgotten() -> Iterator[None]:
    """A light reader tells the state that a lane had, whatever was archived since."""
    with patched(Session, "behind", lambda _self, lane: lane):
        yield


@contextmanager
def replay_accepted() -> Iterator[None]:
    """The first op of an empty lane may be as old as it likes."""
    with patched(lane_archive, "is_too_old", lambda *_: False):
        yield


@contextmanager
def purged_too_early() -> Iterator[None]:
    """Lanes are purged when they have ended, before an archive says so."""
    really_gone = ArchiveWorld.is_gone

    def is_gone(self: Any, key: Any) -> bool:
        state: Any = self.laws.lane(key).state
        has_ended = key.family == "jobs" and state is not None and state.is_terminal
        return has_ended or really_gone(self, key)

    with patched(ArchiveWorld, "is_gone", is_gone):
        yield


@contextmanager
def half_purged() -> Iterator[None]:
    """What happened to a job is purged before its schedule."""

    def lane_filters(mesh: str, family: Any, kind: str, name: str) -> list[str]:
        stems = [stem for branch in reversed(family.branches) for stem in branch.stems]
        return [f"ap.{mesh}.{stem}.{kind}.{name}" for stem in stems]

    with patched(purge_plan, "lane_filters", lane_filters):
        yield


@contextmanager
def tick_again() -> Iterator[None]:
    """A tick counts however long ago it was."""
    with patched(planned, "may_be_archived", lambda *_: False):
        yield


@contextmanager
def key_forgotten() -> Iterator[None]:
    """Keys, and content without a nonce, leave the log as early as everything else."""
    with patched(manifest, "is_asked_again", lambda _manifest: False):
        yield


@contextmanager
def known_lanes_kept() -> Iterator[None]:
    """Who knew a lane before the archive goes on from what it knew."""
    with (
        patched(Session, "is_archived_since", lambda _self, _seq: False),
        patched(LaneReader, "_known", _trusting),
    ):
        yield


def _trusting(self: Any, lane: Any) -> Any:
    place = _really_known(self, lane)
    place.is_continued, place.reach = True, max(lane.tails) + 1
    return place


_really_known: Any = LaneReader._known  # noqa: SLF001 - a bug is put in

Mutant = Callable[[], AbstractContextManager[None]]
MUTANTS: Final[tuple[Mutant, ...]] = (
    archive_forgotten,
    replay_accepted,
    purged_too_early,
    half_purged,
    tick_again,
    key_forgotten,
    known_lanes_kept,
)
