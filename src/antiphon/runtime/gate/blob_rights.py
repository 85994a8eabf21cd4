"""Who may read a blob: every member that may read a job or a document whose records name it.

A member must not get a blob through its own records, or it could get any blob by submitting or
completing a job that names its digest. So it matters who wrote the record. A record written under
a permission that the member delegated counts as its own: the delegate may be another key of the
same member. Such records give it only what it stored itself, or what a machine stored that the
permission was delegated to.

The snapshot that the newest seal names is for every member: it holds hashes alone.

An offer repeats what other jobs ended with. The coordinator writes it, and vouches for nothing: it
counts as the completion that it repeats. So does whoever retries another's job: the retry counts as
the first submission.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Final, Literal

from msgspec import UNSET
from msgspec.structs import replace

from antiphon.core.authority import memory_rights
from antiphon.core.authority.chain_check import path_to_author
from antiphon.core.authority.job_rights import CALLED_BY, READ_BY, WORKED_BY
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.ops import (
    JobArtifact,
    JobClaim,
    JobComplete,
    JobKey,
    JobOffer,
    JobResolve,
    JobSchedule,
    JobYield,
)
from antiphon.core.families.memory import MEMORY
from antiphon.core.families.memory.ops import MemoryPut, Stored
from antiphon.core.manifest import BlobInput, results_read
from antiphon.core.record.branches import LaneKey
from antiphon.core.record.op import Op
from antiphon.core.record.verdict import Verdict
from antiphon.runtime.log.lane_reader import JobView
from antiphon.runtime.node.snapshot_search import SNAPSHOT, newest_seal

if TYPE_CHECKING:
    from antiphon.core.authority.scope import Scope
    from antiphon.runtime.log.session import Session

JOB_ID_LENGTH: Final = 64
RETRIES_FOLLOWED: Final = 64
Named = tuple[Op | None, int, int]
"""A record that names a blob: its op, its sequence and its commit time."""
Vouching = Literal["others"] | frozenset[str]
"""`others`: others' records name the blob. Otherwise: the users who must have stored it."""


class BlobRights:
    """Checks lanes on the machine that runs the gate."""

    def __init__(
        self,
        session: Session,
        scope_of: Callable[[str], Scope],
        nodes_of: Callable[[str], Collection[str]],
        users_of: Callable[[Iterable[str]], Iterable[str]],
    ) -> None:
        """`scope_of` returns an engine user's present scope.

        `nodes_of` returns the keys behind a user: its machine's, or those of a party.

        `users_of` returns the engine users of those nodes that are machines.
        """
        self._session = session
        self._scope_of = scope_of
        self._nodes_of = nodes_of
        self._users_of = users_of

    def may_read(self, user: str, kind: str, job_id: str) -> bool:
        """Whether a user may read jobs of this kind, or documents of the space of this name."""
        if (kind, job_id) == SNAPSHOT:
            return True
        read_by = READ_BY if _is_job(job_id) else memory_rights.READ_BY
        return self._scope_of(user).admits(kind, *read_by)

    def may_store(self, user: str) -> bool:
        """Whether a user may submit or work on anything, or write documents."""
        return bool(self._scope_of(user).of(*CALLED_BY, *WORKED_BY, *memory_rights.WRITTEN_BY))

    async def vouches(self, user: str, kind: str, job_id: str, digest: str) -> Vouching:
        """Whose accepted records on a lane name the blob, as seen from this user."""
        nodes = tuple(one for one in self._nodes_of(user) if one)
        if not nodes or not kind or not job_id:
            return frozenset()
        if (kind, job_id) == SNAPSHOT:
            seal = await newest_seal(self._session)
            return "others" if seal is not None and seal.state == digest else frozenset()
        is_job = _is_job(job_id)
        key = LaneKey(JOBS.name if is_job else MEMORY.name, kind, job_id)
        view = await self._session.read(key)
        named = [
            (judged.opened.op, judged.opened.seq, judged.opened.commit_ms)
            for judged in view.history
            if judged.verdict is Verdict.OK
        ]
        if not is_job and view.lane.state is not None:
            # What waits beside a document may be older than where its lane was entered.
            waiting = [one.seq for one in view.lane.state.siblings]
            for record in await self._session.log.fetch_many(waiting) if waiting else ():
                opened = self._session.open(record)
                named.append((opened.op, opened.seq, opened.commit_ms))
        named = [one for one in named if names(one[0], digest)]
        if isinstance(view, JobView):
            named = await self._with_sources(view, named, digest)
        through: set[str] = set()
        for written, seq, commit_ms in named:
            op = written
            if isinstance(op, JobComplete) and _has_text(op, digest):
                return "others"  # its author wrote the content itself, for all who read the lane
            job = view.lane.job if isinstance(view, JobView) else None
            if isinstance(op, JobSchedule) and op.body.is_derived and job is not None:
                # The coordinator only wrote what the submitter, or the plan's author, named.
                op = replace(op, author=job.scheduler, auth=job.call_auth)
            control = self._session.history.at(seq, commit_ms)
            own: tuple[str, ...] = ()
            is_judged = isinstance(op, (*JOBS.ops, *MEMORY.ops))
            if control is not None and op is not None and is_judged:
                paths = (path_to_author(control, op, seq, node) for node in nodes)
                own = next(filter(None, paths), ())
            if not own:
                return "others"
            through.update(own)
        return frozenset((user, *self._users_of(through))) if through else frozenset()

    async def _first(self, named: Named, digest: str) -> Named | None:
        """A record, or the submission that it repeats; None if it was retried too often to tell."""
        for _ in range(RETRIES_FOLLOWED):
            op, _, _ = named
            if not isinstance(op, JobSchedule) or op.body.retry_of is None:
                return named
            before = await self._session.read(LaneKey(JOBS.name, op.body.kind, op.body.retry_of))
            found = (
                (judged.opened.op, judged.opened.seq, judged.opened.commit_ms)
                for judged in before.history
                if judged.verdict is Verdict.OK
                and isinstance(judged.opened.op, JobSchedule)
                and names(judged.opened.op, digest)
            )
            first = next(found, None)
            if first is None:
                return named
            named = first
        return None

    async def _with_sources(self, view: JobView, named: list[Named], digest: str) -> list[Named]:
        """The same, with what offers and retries repeat in their place."""
        found = [
            first
            for op, seq, commit_ms in named
            if not isinstance(op, JobOffer)
            and (first := await self._first((op, seq, commit_ms), digest)) is not None
        ]
        offers = [seq for op, seq, _ in named if isinstance(op, JobOffer)]
        sources = [key for seq in offers for key in repeated_in(view, seq, digest)]
        for kind, name in dict.fromkeys(sources):
            source = await self._session.read(LaneKey(JOBS.name, kind, name))
            found += [
                (judged.opened.op, judged.opened.seq, judged.opened.commit_ms)
                for judged in source.history
                if judged.verdict is Verdict.OK
                and isinstance(judged.opened.op, JobComplete | JobResolve)
                and names(judged.opened.op, digest)
            ]
        return found


def repeated_in(view: JobView, offered_seq: int, digest: str) -> list[JobKey]:
    """The jobs whose results an offer on this lane repeats with this content."""
    awaited: tuple[JobKey, ...] = ()
    for judged in view.history:
        op = judged.opened.op
        if judged.verdict is not Verdict.OK:
            continue
        if isinstance(op, JobSchedule):
            awaited = tuple(one.of for one in results_read(op.body.manifest))
        elif isinstance(op, JobYield) and op.body.after:
            awaited = op.body.after
        elif isinstance(op, JobOffer) and judged.opened.seq == offered_seq:
            results = zip(awaited, op.body.results, strict=False)
            return [key for key, result in results if result.hash == digest]
    return []


def _has_text(op: JobComplete, digest: str) -> bool:
    return any(one.hash == digest and one.text is not None for one in op.body.outputs)


def _is_job(name: str) -> bool:
    """Whether a lane of this name is a job's: that of a document is shorter."""
    return len(name) == JOB_ID_LENGTH


def names(op: Op | None, digest: str) -> bool:
    """Whether an op names this content as its job's input or output, or as a document's value."""
    if isinstance(op, JobSchedule):
        given = op.body.manifest.inputs
        inputs = () if given is UNSET else given
        return any(isinstance(one, BlobInput) and one.hash == digest for one in inputs)
    if isinstance(op, JobComplete | JobResolve):
        return any(output.hash == digest for output in op.body.outputs)
    if isinstance(op, MemoryPut):
        return isinstance(op.body.value, Stored) and op.body.value.hash == digest
    if isinstance(op, JobClaim | JobYield):
        return op.body.checkpoint is not None and op.body.checkpoint.hash == digest
    if isinstance(op, JobArtifact):
        return op.body.digest == digest
    if isinstance(op, JobOffer):
        return any(result.hash == digest for result in op.body.results)
    return False
