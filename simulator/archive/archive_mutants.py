"""Deliberate bugs of archives and purges: each must be noticed by a law of the simulated log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

from antiphon.core import lane_archive, manifest
from antiphon.core.derivations import purge_plan
from antiphon.core.families.jobs import planned
from antiphon.runtime.archive import record_eraser
from antiphon.runtime.coordinator.archiver import Archiver
from antiphon.runtime.log.lane_reader import LaneReader
from antiphon.runtime.log.session import Session
from antiphon.runtime.node import purged_lanes
from antiphon.runtime.node.full_node import FullNode
from antiphon.runtime.node.sealer import Sealer
from antiphon.runtime.replica.replica import Replica
from antiphon.runtime.replica.replica_archive import ReplicaArchive
from antiphon.runtime.replica.replica_erasures import ReplicaErasures
from antiphon.runtime.replica.replica_tree import Tree
from simulator.archive.archive_world import ArchiveWorld
from simulator.archive.snapshot_world import ForgettingWorld, SnapshotWorld
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


@contextmanager
def snapshot_stale() -> Iterator[None]:
    """Seals go on naming the first snapshot, while lanes are purged that only newer ones let go."""

    def first(self: Any) -> Any:
        last = self.node.seals.state
        made = self.node.snapshot_made[1] or None
        return last.snapshot if last is not None and last.snapshot else made

    def is_sealed(self: Any) -> bool:
        return self.snapshot is not None and self.snapshot.head.at == self._control.archive.seq

    with (
        patched(Sealer, "_snapshot", property(first)),
        patched(Archiver, "_is_sealed", property(is_sealed)),
    ):
        yield


@contextmanager
def frontier_wrong() -> Iterator[None]:
    """The hashes of what is left out are not those of the log."""
    really = Tree.subtree
    with patched(Tree, "subtree", lambda self, level, place: really(self, level, place)[::-1]):
        yield


@contextmanager
def seals_forgotten() -> Iterator[None]:
    """Who begins with a snapshot does not know which seal was accepted last."""
    really = Replica.put_lane

    def put_lane(self: Any, key: Any, lane: Any, **_: Any) -> None:
        really(self, key, lane)

    with patched(Replica, "put_lane", put_lane):
        yield


@contextmanager
def gap_unnoticed() -> Iterator[None]:
    """Who was away reads on, whatever was purged meanwhile."""

    async def missed_some(*_: Any) -> bool:
        return False

    with (
        patched(FullNode, "_has_gap", lambda *_: False),
        patched(purged_lanes, "missed_some", missed_some),
    ):
        yield


@contextmanager
def half_read() -> Iterator[None]:
    """Who reads some kinds does not look for lanes that went while they were read."""

    async def read_again(*_: Any) -> None:
        return

    with patched(purged_lanes, "read_again", read_again):
        yield


@contextmanager
def live_left_out() -> Iterator[None]:
    """A snapshot leaves out a lane that counts."""
    really_going = Archiver._find_going  # noqa: SLF001 - a bug is put in

    async def find_going(self: Any, at: int) -> set[int]:
        replica = self.node.replica
        live = replica.ask(ReplicaArchive).live(replica.tables["plans"], after=0, limit=1)
        return await really_going(self, at) | {one.row for one in live}

    with patched(Archiver, "_find_going", find_going):
        yield


@contextmanager
def erased_too_early() -> Iterator[None]:
    """Nodes erase what is forgotten at once, although other ops may name it."""

    def look_away(_control: Any, one: Any) -> int:
        return int(max(one.lane.tails)) + 1

    def any_time(self: Any, one: Any, *, below: int, before_ms: int) -> int:
        return int(really_erase(self, one, below=below, before_ms=before_ms + 2**41))

    really_erase = ReplicaErasures.erase
    with (
        patched(record_eraser, "erasable_below", look_away),
        patched(ReplicaErasures, "erase", any_time),
    ):
        yield


_really_known: Any = LaneReader._known  # noqa: SLF001 - a bug is put in

Mutant = Callable[[], AbstractContextManager[None]]
WITH_NODES: Final[tuple[Mutant, ...]] = (
    snapshot_stale,
    frontier_wrong,
    seals_forgotten,
    gap_unnoticed,
    half_read,
    live_left_out,
    erased_too_early,
)
"""Of full nodes and snapshots: those show in a world that has some."""
MUTANTS: Final[tuple[Mutant, ...]] = (
    archive_forgotten,
    replay_accepted,
    purged_too_early,
    half_purged,
    tick_again,
    key_forgotten,
    known_lanes_kept,
    *WITH_NODES,
)


def world_of(mutant: Mutant) -> type[ArchiveWorld]:
    """The world in which a bug shows."""
    if mutant is erased_too_early:
        return ForgettingWorld
    return SnapshotWorld if mutant in WITH_NODES else ArchiveWorld
