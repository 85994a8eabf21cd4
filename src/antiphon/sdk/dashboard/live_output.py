"""What jobs print while somebody looks at them: the end of it, for a few jobs at a time.

Live output is stored nowhere (docs/do/commands.md), so a page that is made again needs somebody who
has listened in between. Listening begins with the first look at a job that is held, and ends when
nobody has looked for a while.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from antiphon.errors import AntiphonError

if TYPE_CHECKING:
    from antiphon.runtime.worker.job_output import OutputMessage
    from antiphon.sdk.mesh import Mesh

JOBS: Final = 16
"""That are listened to at the same time; the one that was looked at longest ago gives way."""
UNSEEN_S: Final = 60.0
LETTERS: Final = 16_000
"""Of what one job prints; the newest."""
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
_UNSHOWN: Final = re.compile(r"[^\n\t -\x7e\xa0-\U0010ffff]")


class Piece(Struct, frozen=True):
    """Part of what a job printed."""

    text: str
    is_error: bool
    """Whether it was written to standard error."""


class Printed(Struct, frozen=True, kw_only=True):
    """The end of what a job printed."""

    pieces: list[Piece]
    is_cut: bool = False
    """Whether there was more, before or in between."""
    is_stored: bool = False
    """Whether it is what the job stored at its end; if not, it came since somebody looked."""
    done: float | None = None
    """How far the job is, from 0 to 1."""
    note: str = ""
    mark: int = 0
    """Another one when something came."""


NOTHING: Final = Printed(pieces=[])


def as_text(raw: str) -> str:
    """What a page can show of it: without colours, and of lines that were overwritten the last."""
    lines = _COLOURS.sub("", raw).replace("\r\n", "\n").split("\n")
    return _UNSHOWN.sub("", "\n".join(line.rpartition("\r")[2] or line for line in lines))


class Tail:
    """The end of what one job prints."""

    def __init__(self) -> None:
        self._fence = ""
        self._begin()
        self._done: float | None = None
        self._note = ""
        self._mark = 0

    def _begin(self) -> None:
        self._pieces: deque[tuple[str, bool]] = deque()
        self._letters = 0
        self._at: dict[str, int] = {}
        self._is_cut = False
        make = codecs.getincrementaldecoder("utf-8")
        self._text = {name: make("replace") for name in ("stdout", "stderr")}

    def hear(self, words: OutputMessage) -> None:
        """One message; another tenure begins anew."""
        self._mark += 1
        if words.fence != self._fence:
            self._fence = words.fence
            self._begin()
        if words.done is not None:
            self._done, self._note = words.done, words.note
        if not words.stream:
            return
        at = self._at.get(words.stream, 0)
        if words.at > at:
            self._is_cut = True
        fresh = words.data[max(at - words.at, 0) :]
        self._at[words.stream] = max(at, words.at + len(words.data))
        text = self._text[words.stream].decode(fresh)
        if text:
            self._pieces.append((text[-LETTERS:], words.stream == "stderr"))
            self._letters += len(self._pieces[-1][0])
            self._is_cut = self._is_cut or len(text) > LETTERS
        while self._letters > LETTERS and len(self._pieces) > 1:
            self._letters -= len(self._pieces.popleft()[0])
            self._is_cut = True

    def printed(self) -> Printed:
        """What there is."""
        joined: list[list[str | bool]] = []
        for text, is_error in self._pieces:
            if joined and joined[-1][1] == is_error:
                joined[-1][0] = f"{joined[-1][0]}{text}"
            else:
                joined.append([text, is_error])
        return Printed(
            pieces=[Piece(as_text(str(text)), bool(is_error)) for text, is_error in joined],
            is_cut=self._is_cut,
            done=self._done,
            note=self._note,
            mark=self._mark,
        )


class _Listened:
    """One job that is listened to."""

    def __init__(self, mesh: Mesh, kind: str, job_id: str) -> None:
        self.tail = Tail()
        self.looked_s = time.monotonic()
        self.task = asyncio.create_task(self._listen(mesh, kind, job_id))

    async def _listen(self, mesh: Mesh, kind: str, job_id: str) -> None:
        with suppress(AntiphonError):
            async with mesh.job(kind, job_id).listen() as heard:
                async for words in heard:
                    self.tail.hear(words)


class LiveOutputs:
    """The jobs that somebody looks at."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._jobs: dict[str, _Listened] = {}

    def look(self, kind: str, job_id: str) -> Printed:
        """What a job that has not ended printed since the first look at it."""
        found = self._jobs.pop(job_id, None)
        self._forget_unseen()
        if found is None:
            found = _Listened(self._mesh, kind, job_id)
        found.looked_s = time.monotonic()
        self._jobs[job_id] = found
        return found.tail.printed()

    def ended(self, job_id: str) -> Printed:
        """The same of one that has ended: nobody listens any more."""
        found = self._jobs.pop(job_id, None)
        if found is None:
            return NOTHING
        found.task.cancel()
        return found.tail.printed()

    def close(self) -> None:
        """Listen to nothing any more."""
        for one in self._jobs.values():
            one.task.cancel()
        self._jobs.clear()

    def _forget_unseen(self) -> None:
        now_s = time.monotonic()
        for job_id, one in list(self._jobs.items()):
            if now_s - one.looked_s > UNSEEN_S or len(self._jobs) >= JOBS:
                one.task.cancel()
                del self._jobs[job_id]
