"""Which records of an archive are to be erased, by the orders to forget that a full node has read.

An order is followed as soon as its job has ended: an archive judges nothing by its records. What is
not in the archive yet is written without its bytes; what is there is looked at once per order and
process, so that a copy which was put back from elsewhere loses it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.core.archive.record_files import Erased
from antiphon.core.families.erasures.state import is_about
from antiphon.core.families.jobs.state import job_key
from antiphon.runtime.archive.archive_eraser import erase_places
from antiphon.runtime.archive.archive_reader import ArchiveReader
from antiphon.runtime.replica.replica_erasures import ReplicaErasures

if TYPE_CHECKING:
    from antiphon.core.families.erasures.state import Erasure
    from antiphon.core.families.jobs.state import JobLane
    from antiphon.runtime.file_store import FileStore
    from antiphon.runtime.replica.replica import Replica


class ArchiveOrders:
    """Follows the orders of one replica in one archive."""

    def __init__(self, replica: Replica, store: FileStore) -> None:
        """Nothing is known of what was erased there."""
        self._replica, self._store = replica, store
        self._followed: set[tuple[str, str, int]] = set()
        """Orders whose records in the archive are erased: kind, job, place of the order."""

    def notes(self, first: int, last: int) -> dict[int, Erased]:
        """Of the records between two sequences, both included, those to write without bytes."""
        found = self._replica.ask(ReplicaErasures).records(first, last)
        return {
            seq: _note(order) for seq, order, lane in found if is_due(order, lane, before=seq + 1)
        }

    async def erase(self, size: int) -> None:
        """Erase what an archive of this size has; nobody else may write there meanwhile."""
        replica = self._replica
        queries, reader = replica.ask(ReplicaErasures), None
        if not size:
            return
        async for kind, name, order in queries.all():
            which, key = (kind, name, order.seq), job_key(kind, name)
            lane = queries.lane(kind, name)
            if which in self._followed or not is_due(order, lane):
                continue
            reader = reader or await ArchiveReader.open(self._store)
            job = lane.job
            end = job.scheduled_seq if job is not None and not is_about(order, job) else None
            if replica.tree.base:  # its records may be older than what is here
                places = [
                    at for at, leaf in await reader.places_of(key) if not end or leaf.seq < end
                ]
            else:
                seqs = (one.record.seq for one in replica.lane_records(key))
                places = [replica.tree.size_at(one) - 1 for one in seqs if not end or one < end]
            await erase_places(reader, [at for at in places if at < size], _note(order))
            self._followed.add(which)


def is_due(order: Erasure, lane: JobLane, *, before: int = 0) -> bool:
    """Whether a job has ended, or one of the same id began since; then, what came before that."""
    job = lane.job
    if job is None or is_about(order, job):
        return job is None or job.is_terminal
    return before <= job.scheduled_seq


def _note(order: Erasure) -> Erased:
    return Erased(by=order.by, at_ms=order.at_ms)
