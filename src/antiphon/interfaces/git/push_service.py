"""Answers the program that Git runs for a push: may this commit be a job, and make it one.

It listens on a socket in the repository. Whoever reaches it can only have signed commits of keys
with a delegation submitted, and a bounded number of those. Reading what was pushed counts for the
repository, and all that follows for the party of the key that signed it.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antiphon.decoding import UNREADABLE
from antiphon.errors import AntiphonError, Malformed
from antiphon.guard import Guard, Limits, Who
from antiphon.interfaces.git.job_refs import JOBS
from antiphon.interfaces.git.pushed_commit import Pushed, read_pushed
from antiphon.sdk.authority.acting import OWN
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from antiphon.interfaces.git.followed_branches import FollowedBranches
    from antiphon.interfaces.git.push_pace import PushPace
    from antiphon.interfaces.git.repository import Repository
    from antiphon.sdk.git.pushed_jobs import PushedJob, PushedJobs

SOCKET: Final = "push.sock"
MAX_REQUEST_BYTES: Final = 2 * 1024 * 1024
MOST_AT_ONCE: Final = 16
"""Connections, each with one line in memory."""
REQUEST_S: Final = 60.0
PUSHED: Final = Limits(
    room="pushes",
    of_party=8,
    in_all=16,
    request_bytes=MAX_REQUEST_BYTES,
    seconds=REQUEST_S,
    work_s=5.0,
)
REPOSITORY: Final = Who(party="the repository", acts=OWN)
"""Whoever can push to it, as long as no signature was checked. What comes to followed branches is
submitted by the bridge's own right."""

_log = LazyLogger(__name__)


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question about one pushed ref."""

    do: str
    """`check` or `submit` a commit as a job, or `look` at the followed branches."""
    pushed: Pushed | None = None


class PushService:
    """The pushes to one repository."""

    def __init__(
        self,
        repository: Repository,
        jobs: PushedJobs,
        pace: PushPace,
        branches: FollowedBranches | None = None,
        guard: Guard | None = None,
    ) -> None:
        """Use `listening`. Without `branches`, none is followed."""
        self._guard = guard or Guard()
        self._repository = repository
        self._jobs = jobs
        self._pace = pace
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._branches = branches
        self.submitted = 0

    async def answer(self, line: bytes) -> dict[str, Any]:
        """The answer to one request, whatever it is."""
        try:
            try:
                request = msgspec.json.decode(line, type=Request)
            except UNREADABLE as problem:
                raise Malformed(f"the request cannot be read: {problem}") from problem
            with self._guard.admit(PUSHED, REPOSITORY, len(line)) as visit:
                if request.do == "look":
                    return await visit.work(self._look())
                job = await visit.work(self._read(request.pushed))
            signer = self._jobs.signer(job)
            who = Who(party=signer.party, acts=signer)
            with self._guard.admit(PUSHED, who, len(line)) as visit:
                return await visit.work(self._done(job, request.do, signer.party))
        except AntiphonError as problem:
            return {"ok": False, "words": problem.message, "hint": problem.hint or ""}
        except Exception:  # noqa: BLE001 - one request must not end the service
            _log.exception("git push: a request was not answered")
            return {"ok": False, "words": "the bridge failed; its log says why", "hint": ""}

    async def _done(self, job: PushedJob, do: str, party: str) -> dict[str, Any]:
        await self._jobs.check(job)
        if do == "check":
            return {"ok": True, "job": job.id}
        self._pace.submit(party, _now_s())
        is_new = await self._jobs.submit(job)
        self.submitted += is_new
        ref = f"{JOBS}{job.id}/pushed"
        # After the submission: what the log did not accept is not shown, and a second push of the
        # same commit is the same job.
        known = await self._repository.targets([ref])
        if ref not in known:
            await self._repository.update([f"create {ref} {job.commit_id}"])
        return {"ok": True, "job": job.id, "ref": ref, "is_new": is_new}

    async def _read(self, pushed: Pushed | None) -> PushedJob:
        if pushed is None:
            raise Malformed("the request does not say what was pushed")
        return read_pushed(pushed, self._repository.algorithm, self._jobs.mesh)

    async def _look(self) -> dict[str, Any]:
        if self._branches is None:
            return {"ok": True, "noticed": [], "waiting": 0}
        found = await self._branches.look()
        return {"ok": True, **msgspec.to_builtins(found)}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection: one line, one answer, as often as it asks."""
        with suppress(OSError, ValueError, TimeoutError, asyncio.IncompleteReadError):
            async with self._room:
                while True:
                    async with asyncio.timeout(REQUEST_S):
                        line = await reader.readline()
                        if not line:
                            break
                        answer = await self.answer(line)
                        writer.write(msgspec.json.encode(answer) + b"\n")
                        await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def _now_s() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def listening(service: PushService, folder: Path) -> AsyncIterator[None]:
    """Answer on the folder's socket while a block runs."""
    path = folder / SOCKET
    path.unlink(missing_ok=True)
    # A socket's address has at most 108 bytes, and a repository may be anywhere.
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        server = await asyncio.start_unix_server(
            service.serve, f"/proc/self/fd/{handle}/{SOCKET}", limit=MAX_REQUEST_BYTES
        )
        path.chmod(0o660)
    finally:
        os.close(handle)
    try:
        async with server:
            yield
    finally:
        path.unlink(missing_ok=True)
