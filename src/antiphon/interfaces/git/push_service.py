"""Answers the program that Git runs for a push: may this commit be a job, and make it one.

It listens on a socket in the repository. Whoever reaches it can only have signed commits of keys
with a delegation submitted, and a bounded number of those.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antiphon.decoding import UNREADABLE
from antiphon.errors import AntiphonError, Malformed
from antiphon.interfaces.git.job_refs import JOBS
from antiphon.interfaces.git.pushed_commit import Pushed, read_pushed
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
REQUEST_S: Final = 60.0

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
    ) -> None:
        """Use `listening`. Without `branches`, none is followed."""
        self._repository = repository
        self._jobs = jobs
        self._pace = pace
        self._branches = branches
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self.submitted = 0

    async def answer(self, line: bytes) -> dict[str, Any]:
        """The answer to one request, whatever it is."""
        try:
            try:
                request = msgspec.json.decode(line, type=Request)
            except UNREADABLE as problem:
                raise Malformed(f"the request cannot be read: {problem}") from problem
            self._pace.ask(_now_s())
            if request.do == "look":
                return await self._look()
            job = self._read(request.pushed)
            if request.do == "check":
                await self._jobs.check(job)
                return {"ok": True, "job": job.id}
            return await self._submit(job)
        except AntiphonError as problem:
            return {"ok": False, "words": problem.message, "hint": problem.hint or ""}
        except Exception:  # noqa: BLE001 - one request must not end the service
            _log.exception("git push: a request was not answered")
            return {"ok": False, "words": "the bridge failed; its log says why", "hint": ""}

    async def _submit(self, job: PushedJob) -> dict[str, Any]:
        await self._jobs.check(job)
        self._pace.submit(job.signer, _now_s())
        is_new = await self._jobs.submit(job)
        self.submitted += is_new
        ref = f"{JOBS}{job.id}/pushed"
        # After the submission: what the log did not accept is not shown, and a second push of the
        # same commit is the same job.
        known = await self._repository.targets([ref])
        if ref not in known:
            await self._repository.update([f"create {ref} {job.commit_id}"])
        return {"ok": True, "job": job.id, "ref": ref, "is_new": is_new}

    def _read(self, pushed: Pushed | None) -> PushedJob:
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
