"""Answers the program that Git runs for a push: may this commit be a job, and make it one.

It listens on a socket in the repository. Whoever reaches it can only have signed commits of keys
with a delegation submitted, and a bounded number of those.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter, deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from antiphon.errors import AntiphonError, Malformed, Rejected
from antiphon.interfaces.git.job_refs import JOBS
from antiphon.interfaces.git.pushed_commit import Pushed, read_pushed
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from antiphon.interfaces.git.repository import Repository
    from antiphon.sdk.git.pushed_jobs import PushedJob, PushedJobs

SOCKET: Final = "push.sock"
MAX_REQUEST_BYTES: Final = 2 * 1024 * 1024
MOST_AT_ONCE: Final = 16
REQUEST_S: Final = 60.0
PER_MINUTE: Final = 600
"""Jobs that one key may have submitted in a minute."""
ASKED_PER_MINUTE: Final = 6_000
"""Requests in a minute in all, refused ones too."""

_log = LazyLogger(__name__)


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One question about one pushed ref."""

    do: str
    """`check` or `submit`."""
    pushed: Pushed


class PushPace:
    """How many jobs keys have submitted in the last minute."""

    def __init__(self, *, each: int = PER_MINUTE, in_all: int = ASKED_PER_MINUTE) -> None:
        """So many for each key, and so many requests in all."""
        self._each = each
        self._in_all = in_all
        self._asked: deque[float] = deque()
        self._submitted: deque[tuple[float, str]] = deque()
        self._counts: Counter[str] = Counter()

    def ask(self, now_s: float) -> None:
        """Count a request; `Rejected` if there were too many."""
        while self._asked and self._asked[0] <= now_s - 60:
            self._asked.popleft()
        if len(self._asked) >= self._in_all:
            raise _too_many(f"this bridge answers {self._in_all:,} requests a minute")
        self._asked.append(now_s)

    def submit(self, key: str, now_s: float) -> None:
        """Count a job of a key; `Rejected` if it had too many."""
        while self._submitted and self._submitted[0][0] <= now_s - 60:
            _, oldest = self._submitted.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        if self._counts[key] >= self._each:
            raise _too_many(f"a key may push {self._each:,} jobs a minute")
        self._submitted.append((now_s, key))
        self._counts[key] += 1


def _too_many(why: str) -> Rejected:
    return Rejected(why, reason="pace", hint="push again in a minute")


class PushService:
    """The pushes to one repository."""

    def __init__(self, repository: Repository, jobs: PushedJobs, pace: PushPace) -> None:
        """Use `listening`."""
        self._repository = repository
        self._jobs = jobs
        self._pace = pace
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self.submitted = 0

    async def answer(self, line: bytes) -> dict[str, Any]:
        """The answer to one request, whatever it is."""
        try:
            try:
                request = msgspec.json.decode(line, type=Request)
            except msgspec.MsgspecError as problem:
                raise Malformed(f"the request cannot be read: {problem}") from problem
            self._pace.ask(_now_s())
            job = read_pushed(request.pushed, self._repository.algorithm, self._jobs.mesh)
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
