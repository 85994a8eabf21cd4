"""Which job a person means: by its id, by the beginning of its id, or by its alias."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from antiphon.core.authority.scope import meet
from antiphon.errors import Misconfigured, Rejected
from antiphon.runtime.replica.job_pages import EVERYTHING
from antiphon.runtime.replica.replica_jobs import ReplicaJobs as ReplicaJobs  # noqa: PLC0414 - interfaces
from antiphon.sdk.environment import read_environment
from antiphon.sdk.handle import JobHandle, ResultReader, StreamHandle

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from antiphon.core.families.jobs.state import Job
    from antiphon.runtime.caller.submission import Ended
    from antiphon.runtime.replica.replica import Replica
    from antiphon.runtime.values.signature import CallSignature
    from antiphon.sdk.connection.connection import Connection

ID_LENGTH: Final = 64
SHOWN: Final = 4
_JOB: Final = re.compile(r"[0-9a-f]{1,64}|[0-7][0-9a-hjkmnp-tv-z]{25}", re.ASCII)
"""Digits of an id, or an alias: a ULID."""
_LISTED: Final = "'antiphon jobs' lists the newest, and so does 'await mesh.jobs()'"


class HasReplica(Protocol):
    """What a lookup needs of its mesh."""

    def replica(self) -> AbstractAsyncContextManager[Replica]:
        """See `Mesh`."""


def is_id(text: str) -> bool:
    """Whether it can be an id, the beginning of one, or an alias."""
    return _JOB.fullmatch(_plain(text)) is not None


def no_id(text: str) -> str:
    """What is wrong with a text that cannot be one."""
    return f"{text!r} is not a job id: ids are hexadecimal digits, aliases are ULIDs"


def plain_id(text: str) -> str:
    """An id, its beginning or an alias as it is looked up; `Misconfigured` if it is neither."""
    if not is_id(text):
        raise Misconfigured(no_id(text), hint=_LISTED)
    return _plain(text)


def handle_on(
    connection: Connection, kind: str, job_id: str, signature: CallSignature | None = None
) -> JobHandle[Any]:
    """A handle on a job: `Mesh.job`."""
    if not job_id:
        kind, job_id = "", kind
    wanted = plain_id(job_id)
    is_whole = bool(kind) and len(wanted) == ID_LENGTH
    made = StreamHandle if signature is not None and signature.is_stream else JobHandle
    return made(
        connection.session,
        kind,
        wanted,
        is_new=False,
        reader=ResultReader(signature, lambda: connection.artifacts),
        is_known=False,
        look_up=None if is_whole else partial(find_job, connection, wanted, kind),
        archived=partial(_archived, connection),
    )


async def _archived(connection: Connection, kind: str, job_id: str) -> Ended | None:
    """The end of a job that is not on the log."""
    from antiphon.sdk.archive.archived_end import archived_end

    home = connection.home_of_files
    return None if home is None else await archived_end(home.path, kind, job_id)


def _plain(text: str) -> str:
    return text.strip().lower().removeprefix("blake3:")


async def find_job(mesh: HasReplica, text: str, kind: str = "") -> Job:
    """The one job with this alias, or whose id begins so; otherwise an error says what to type."""
    async with mesh.replica() as replica:
        return one_job(replica, text, kind)


def one_job(
    replica: Replica, text: str, kind: str = "", *, kinds: Sequence[str] = EVERYTHING
) -> Job:
    """The same on a replica, among the kinds that whoever asks may see."""
    wanted = plain_id(text)
    among = meet((tuple(kinds), (kind,))) if kind else kinds
    found = replica.ask(ReplicaJobs).find(wanted, kinds=among)
    of_kind = f" of kind {kind}" if kind else ""
    if not found:
        raise Rejected(
            f"no job{of_kind} that this machine can read has an id that begins with"
            f" {wanted[:8]}, or that alias",
            reason="no_job",
            hint=_LISTED,
        )
    if len(found) > 1:
        some = ", ".join(f"{job.id[:12]} ({job.kind})" for job in found[:SHOWN])
        more = "" if len(found) <= SHOWN else ", …"
        raise Rejected(
            f"several jobs{of_kind} begin with {wanted[:8]}, or have that alias: {some}{more}",
            reason="ambiguous",
            hint="type more of the id",
        )
    return found[0]


def recent_jobs(home: Path | None, *, limit: int) -> list[Job]:
    """The newest jobs, as far as this machine's replica has them; makes no connection."""
    from antiphon.runtime.replica.replica import Replica

    chosen = read_environment()
    found = chosen.state_directory(home)
    chosen.require_only_mesh(found)
    replica = Replica(found.replica, mesh=found.mesh().mesh, read_only=True)
    try:
        return replica.ask(ReplicaJobs).jobs(limit=limit)
    finally:
        replica.close()


__all__ = [
    "ID_LENGTH",
    "find_job",
    "handle_on",
    "is_id",
    "no_id",
    "one_job",
    "plain_id",
    "recent_jobs",
]
