"""A commit that was pushed to a followed branch, as a small job that plans can react to.

The job says which commit came to which branch, and its run stores the commit's files: what a plan
on `git.push.<name>` gets. Who may push is decided where the repository is served, and nothing in a
commit decides what is run: that is what plans say, by the rights of their authors. So the bridge
submits this one kind by its own right, and runs it.

The id follows from branch and commit alone. A push that is noticed twice is one job.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from antiphon.assembly import working
from antiphon.assembly.artifact_store import artifacts_of
from antiphon.core.manifest import BlobInput, Manifest, job_id
from antiphon.core.record.ids import digest
from antiphon.core.record.subjects import check_kind
from antiphon.errors import Malformed, Misconfigured, Rejected
from antiphon.runtime.executors.executor import Assignment, Ran
from antiphon.runtime.executors.handler_call import JSON, RESULT, call_of, call_text, inline_output
from antiphon.runtime.executors.proof_writer import python_runner
from antiphon.runtime.worker.worker import WorkerSettings
from antiphon.sdk.git.job_history import PUSHED, JobHistory, pushed_commit
from antiphon.sdk.git.pushed_jobs import PushedJob, PushedJobs
from antiphon.sdk.worker import claimable

if TYPE_CHECKING:
    from antiphon.runtime.artifacts.store import Artifacts
    from antiphon.sdk.mesh import Mesh

KINDS: Final = "git.push."
UNDECODED: Final = chr(0xFFFD)
"""What stands for bytes that are no text."""
SOURCE: Final = "source.tar"
"""The output of a push's job: the files of the commit."""
RUN_S: Final = 900
MAX_NAME: Final = 63
MAX_REF_BYTES: Final = 200
MAX_COMMIT_BYTES: Final = 64 * 1024
AT_ONCE: Final = 2
_REF: Final = re.compile(r"refs/heads/[^\x00-\x20\x7f~^:?*\[\\]+")
"""What Git takes for a branch, roughly."""
_NO_WORD: Final = re.compile(r"[^a-z0-9]+")

Source = Callable[["Push", Path], AbstractAsyncContextManager[Path]]
"""Writes the files of a push's commit into a folder; where the archive is."""


class Push(Struct, frozen=True, kw_only=True):
    """A commit on a branch."""

    kind: str
    job: str
    ref: str
    commit_id: str


def is_push_kind(kind: str) -> bool:
    """Whether jobs of a kind, or of a pattern of kinds, are pushes."""
    return kind.startswith(KINDS)


def push_kind(name: str) -> str:
    """The kind of the pushes to a repository that is called so; `Malformed` if none can be."""
    if len(name) > MAX_NAME or "." in name:
        raise Malformed(
            f"{name!r} cannot name a repository's pushes: it is one word of at most {MAX_NAME}"
            " characters",
            reason="kind",
            hint="--name app",
        )
    return check_kind(KINDS + name)


def name_of(repository: Path) -> str:
    """What a repository is called by its folder: the word after `git.push.`."""
    folder = repository.parent if repository.name == ".git" else repository
    word = _NO_WORD.sub("-", folder.name.removesuffix(".git").lower())[:MAX_NAME].strip("-")
    return word or "repository"


def push_job(kind: str, ref: str, commit_id: str, commit: bytes, *, by: str) -> PushedJob:
    """The job of a commit that came to a branch; `Malformed` if it is too large for one."""
    if not _is_branch(ref):
        raise Malformed(
            f"{ref[:MAX_REF_BYTES]!r} has more than {MAX_REF_BYTES} bytes, or is no plain name",
            reason="ref",
        )
    if not commit:
        raise Malformed(f"there is no commit {commit_id[:8]}", reason="object")
    if len(commit) > MAX_COMMIT_BYTES:
        raise Malformed(
            f"the commit {commit_id[:8]} has {len(commit):,} bytes; at most {MAX_COMMIT_BYTES:,}",
            reason="size",
        )
    given = BlobInput(
        algo="blake3", hash=digest(commit), size=len(commit), name=PUSHED.format(commit_id)
    )
    manifest = Manifest(
        command=(f"@{kind}",),
        args=(call_text((ref, commit_id), {}),),
        timeout=RUN_S,
        inputs=(given,),
    )
    return PushedJob(kind=kind, manifest=manifest, signer=by, commit_id=commit_id, commit=commit)


def _is_branch(ref: str) -> bool:
    """Whether a ref is a branch whose name can be shown in one line; not what stands for bytes."""
    is_plain = ref.isprintable() and UNDECODED not in ref
    return is_plain and bool(_REF.fullmatch(ref)) and len(ref.encode()) <= MAX_REF_BYTES


def push_in(kind: str, job: str, manifest: Manifest) -> Push | None:
    """The push that a job is about; None if it is about none."""
    if not is_push_kind(kind):
        return None
    try:
        args, _ = call_of(manifest)
    except Malformed:
        return None
    match args:
        case [str(ref), str(commit)] if _is_branch(ref):
            is_same = commit == pushed_commit(manifest)
            return Push(kind=kind, job=job, ref=ref, commit_id=commit) if is_same else None
    return None


def push_of(history: JobHistory) -> Push | None:
    """The push that a job's history is about; None if it is about none, or did not succeed."""
    if history.ending is None or history.ending.outcome != "succeeded":
        return None
    manifest = msgspec.json.decode(history.manifest, type=Manifest)
    return push_in(history.kind, history.id, manifest)


def source_hash(history: JobHistory) -> str:
    """The digest of the files that a push's job stored; empty if there are none."""
    outputs = [] if history.ending is None else msgspec.json.decode(history.ending.outputs)
    return next((one.get("hash", "") for one in outputs if one["name"] == SOURCE), "")


class Pushes:
    """The pushes to one repository, and one mesh."""

    def __init__(self, mesh: Mesh, kind: str) -> None:
        """The mesh is open."""
        self._mesh = mesh
        self._jobs = PushedJobs(mesh)
        self.kind = kind

    def job(self, ref: str, commit_id: str, commit: bytes) -> PushedJob:
        """The job of a commit that came to a branch."""
        return push_job(self.kind, ref, commit_id, commit, by=self._mesh.did)

    async def submit(self, job: PushedJob) -> bool:
        """Submit a push's job; False if it was on the log before."""
        return await self._jobs.submit(job)

    @asynccontextmanager
    async def running(self, source: Source) -> AsyncIterator[None]:
        """Run the jobs of pushes while the block runs; `Misconfigured` if this machine may not."""
        example = self.job("refs/heads/main", "0" * 40, b"commit")
        try:
            await self._jobs.check(example)
        except Rejected as problem:
            raise _not_allowed(self.kind, problem.message) from problem
        async with AsyncExitStack() as stack:
            connection = self._mesh.connection
            joined = await connection.join_worker(stack, {self.kind})
            artifacts = artifacts_of(joined, connection.home_of_files)
            executors = _PushExecutors(self.kind, source, artifacts)
            settings = WorkerSettings(slots=AT_ONCE)
            worker = await stack.enter_async_context(working(joined, executors, settings))
            if self.kind not in claimable(worker):
                raise _not_allowed(self.kind, f"this machine may not run {self.kind}")
            yield


def _not_allowed(kind: str, why: str) -> Misconfigured:
    return Misconfigured(
        f"branches cannot be followed here: {why}",
        hint=f"invite it with --can schedule --can claim --kind {kind}, or leave out --follow",
    )


class _PushExecutors:
    """Runs pushes alone: checks the commit, and stores its files."""

    goes_on = False
    grace_s = 0.0

    def __init__(self, kind: str, source: Source, artifacts: Artifacts) -> None:
        self._kind = kind
        self._source = source
        self._artifacts = artifacts

    @property
    def kinds(self) -> list[str]:
        return [self._kind]

    def find(self, kind: str, manifest: Manifest) -> _PushExecutors | None:
        return self if kind == self._kind and manifest.handler == kind else None

    async def run(self, assignment: Assignment) -> Ran:
        push = push_in(assignment.kind, assignment.job_id, assignment.manifest)
        if push is None or push.job != job_id(assignment.manifest):
            raise Malformed("this job does not say what was pushed", reason="push")
        import tempfile

        with tempfile.TemporaryDirectory(prefix="antiphon-source-") as folder:
            async with self._source(push, Path(folder)) as archive:
                kept = await self._artifacts.keep(
                    archive, SOURCE, media_type="application/x-tar", inline_bytes=-1
                )
        said = msgspec.json.encode({"commit": push.commit_id, "ref": push.ref}).decode()
        result = inline_output(RESULT, said, JSON)
        return Ran(runner=python_runner(), outputs=(result, kept))

    async def fall_back(self, name: str, assignment: Assignment) -> Ran | None:
        del name, assignment
        return None


__all__ = ["Push", "Pushes", "is_push_kind", "name_of", "push_kind", "push_of", "source_hash"]
