"""Jobs by their ids, and lists of jobs: what `Mesh` offers to find those of others."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from antiphon.sdk.handle import JobHandle, ResultReader
from antiphon.sdk.jobs.job_lookup import ID_LENGTH, find_job, list_jobs, plain_id

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager

    from antiphon.core.families.jobs.state import Job
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.runtime.log.session import Session
    from antiphon.runtime.node.replica import Replica
    from antiphon.runtime.values.signature import CallSignature


class JobMethods:
    """A part of `Mesh`."""

    @property
    def session(self) -> Session:
        """See `Mesh`."""
        raise NotImplementedError

    @property
    def artifacts(self) -> Artifacts:
        """See `Mesh`."""
        raise NotImplementedError

    def replica(self) -> AbstractAsyncContextManager[Replica]:
        """See `Mesh`."""
        raise NotImplementedError

    def job(
        self, kind: str, job_id: str = "", signature: CallSignature | None = None
    ) -> JobHandle[Any]:
        """A handle on a job: `mesh.job("example.add", id)`, or `mesh.job("ab12")` by its id alone.

        The id may be cut off, as on the command line, or be the job's alias. Then it is looked up
        when the handle is first used: `Rejected` if there is no such job, or several.
        """
        if not job_id:
            kind, job_id = "", kind
        wanted = plain_id(job_id)
        is_whole = bool(kind) and len(wanted) == ID_LENGTH
        return JobHandle(
            self.session,
            kind,
            wanted,
            is_new=False,
            reader=ResultReader(signature, lambda: self.artifacts),
            is_known=False,
            look_up=None if is_whole else partial(find_job, self, wanted, kind),
        )

    async def jobs(
        self, *, state: str | Iterable[str] = (), kind: str = "", limit: int = 20
    ) -> list[Job]:
        """The newest jobs that this machine can read, as `antiphon jobs` lists them.

        `state` is one of `waiting`, `pending`, `claimed`, `running`, `succeeded`, `failed` and
        `aborted`, or several; `kind` stands for the kinds below it, too.
        """
        return await list_jobs(self, states=state, kind=kind, limit=limit)


__all__ = ["JobMethods"]
