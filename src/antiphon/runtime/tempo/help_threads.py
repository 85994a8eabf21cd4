"""Help between workers: a request, promises and an answer on one thread of the bus (spec §11).

The one who asks works on, and waits for the answer when it needs it. If nobody has promised by the
end of the bar, or nobody has answered when the thread closes, there will be no help. A promise
says after how many beats the thread closes by itself.

Only who may work on the kind can write to a thread, and every message is signed. What an answer
says is for the asker to judge: nobody has checked it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from antiphon.core.bus.signed_message import Refused
from antiphon.core.bus.subjects import PROMISE
from antiphon.core.policy.phrase_run import beats_text
from antiphon.core.tempo.messages import HelpAnswer, HelpPromise, HelpRequest
from antiphon.errors import AntiphonError, Misconfigured, WaitExhausted
from antiphon.runtime.tempo.tempo_messages import TALKS
from antiphon.telemetry import LazyLogger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Generator

    from antiphon.core.tempo.messages import Talk
    from antiphon.ports import BusMessage
    from antiphon.runtime.log.session import Session

MAX_ABOUT: Final = 16 * 1024
MAX_PENDING: Final = 64
THREAD_BYTES: Final = 16

log = LazyLogger(__name__)


class HelpThread:
    """A request for help of one job."""

    def __init__(  # noqa: PLR0913 - made in one place
        self,
        session: Session,
        job: tuple[str, str],
        about: str,
        *,
        beats: int,
        beat_ms: int,
        promise_within_ms: int,
        wait: Callable[[HelpThread], Awaitable[str]],
        missing: Callable[[WaitExhausted], object],
    ) -> None:
        """`wait` awaits it within the budget; `missing` is told when nobody has promised."""
        if len(about.encode()) > MAX_ABOUT:
            raise Misconfigured(
                f"a request for help has at most {MAX_ABOUT:,} bytes",
                hint="keep the data with mesh.artifacts.keep(path), and name its hash",
            )
        self.thread_id = session.entropy.token(THREAD_BYTES).hex()
        self.promise: HelpPromise | None = None
        self._session = session
        self._kind, self._job = job
        self._where = PROMISE.at(kind=self._kind, thread=self.thread_id)
        self._about = about
        self._beats, self._beat_ms = beats, beat_ms
        self._promise_within_ms = min(promise_within_ms, beats * beat_ms)
        self._wait, self._missing = wait, missing
        loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[str] = loop.create_future()
        self._answer.add_done_callback(_seen)
        self._timer = loop.call_later(self._promise_within_ms / 1000, self._nobody)
        self._task: asyncio.Task[Any] | None = None

    @property
    def is_promised(self) -> bool:
        """Whether somebody has promised to help."""
        return self.promise is not None

    @property
    def confidence(self) -> float:
        """How certain the promise is; 0 without one."""
        return 0.0 if self.promise is None else self.promise.confidence

    @property
    def is_answered(self) -> bool:
        """Whether the answer is here."""
        return self._answer.done() and self._answer.exception() is None

    def __await__(self) -> Generator[Any, None, str]:
        """The answer, within the help budget; `WaitExhausted` if there is none."""
        return self._wait(self).__await__()

    def answered(self) -> Awaitable[str]:
        """The answer, without a budget."""
        return asyncio.shield(self._answer)

    async def run(self) -> None:
        """Ask, and listen until there is an answer or the thread closes. Never raises."""
        self._task = asyncio.current_task()
        try:
            async with self._session.engine.bus.subscribe(
                self._where, max_pending=MAX_PENDING
            ) as talks:
                await _say(self._session, self._where, self._request())
                async for heard in talks:
                    self._hear(heard)
                    if self._answer.done():
                        return
        except AntiphonError as problem:
            log.warning("help_not_asked", job=self._job, problem=problem.message)
        except asyncio.CancelledError:
            return

    def _request(self) -> HelpRequest:
        return HelpRequest(
            thread_id=self.thread_id,
            task_id=f"{self._kind}/{self._job}",
            about=self._about,
            beats=self._beats,
        )

    def _hear(self, heard: BusMessage) -> None:
        talk = opened(self._session, heard)
        if talk is None or talk.thread_id != self.thread_id or self._answer.done():
            return
        if isinstance(talk, HelpPromise) and self._is_better(talk):
            self.promise = talk
            self._timer.cancel()
            # The thread closes by itself, whatever the one who promised does.
            loop = asyncio.get_running_loop()
            close_s = talk.fail_after_beats * self._beat_ms / 1000
            self._timer = loop.call_later(close_s, self._broken)
        elif isinstance(talk, HelpAnswer):
            self._timer.cancel()
            self._answer.set_result(talk.answer)

    def _is_better(self, promise: HelpPromise) -> bool:
        """Of several promises the most certain counts; of equal ones the first."""
        return self.promise is None or promise.confidence > self.promise.confidence

    def _nobody(self) -> None:
        beats = -(-self._promise_within_ms // self._beat_ms)
        self._fail(f"nobody promised to help within {beats_text(beats)}")

    def _broken(self) -> None:
        if self.promise is None:
            return
        after, on_fail = self.promise.fail_after_beats, self.promise.on_fail
        self._fail(f"the help that was promised did not come within {beats_text(after)}", on_fail)

    def _fail(self, why: str, on_fail: str = "") -> None:
        if not self._answer.done():
            on = f"help {self.thread_id[:8]}"
            spent = WaitExhausted(why, what="help", on=on, on_fail=on_fail)
            self._answer.set_exception(spent)
            self._missing(spent)
        self.close()

    def close(self) -> None:
        """Listen no more."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        if not self._answer.done():
            self._answer.cancel()


class HelpAsked:
    """A request that this node may answer."""

    kind: str
    request: HelpRequest
    author: str
    """The node that asks."""

    def __init__(self, session: Session, kind: str, request: HelpRequest, author: str) -> None:
        """Made by `help_asked`."""
        self.kind = kind
        self.request = request
        self.author = author
        self._session = session
        self._where = PROMISE.at(kind=kind, thread=request.thread_id)

    @property
    def about(self) -> str:
        """What help is asked for."""
        return self.request.about

    @property
    def beats(self) -> int:
        """How long the one who asks waits at most."""
        return self.request.beats

    async def promise(
        self,
        beats: int,
        *,
        fail_after_beats: int | None = None,
        confidence: float = 1.0,
        on_fail: str = "",
    ) -> None:
        """Promise an answer within so many beats; the thread closes after `fail_after_beats`.

        `confidence` says how certain that is, from 0 to 1. `on_fail` names the fallback of the
        asker's task that should run if the answer does not come.
        """
        talk = HelpPromise(
            thread_id=self.request.thread_id,
            promise_beats=beats,
            fail_after_beats=beats if fail_after_beats is None else fail_after_beats,
            confidence=confidence,
            on_fail=on_fail,
        )
        await _say(self._session, self._where, talk)

    async def answer(self, text: str) -> None:
        """Send the help itself."""
        talk = HelpAnswer(thread_id=self.request.thread_id, answer=text)
        await _say(self._session, self._where, talk)


async def help_asked(session: Session, kind: str) -> AsyncIterator[HelpAsked]:
    """Requests for help with jobs of a kind, from now on, each once."""
    where = PROMISE.at(kind=kind, thread="*")
    async with session.engine.bus.subscribe(where, max_pending=MAX_PENDING) as talks:
        async for heard in talks:
            message = TALKS.open(
                heard.payload,
                mesh=session.mesh,
                subject=heard.subject,
                now_ms=session.wall.now_ms(),
            )
            if isinstance(message, Refused) or not isinstance(message.body, HelpRequest):
                continue
            if heard.subject == PROMISE.at(kind=kind, thread=message.body.thread_id):
                yield HelpAsked(session, kind, message.body, message.author)


def opened(session: Session, heard: BusMessage) -> Talk | None:
    """What was said on a thread, if it is signed and fresh."""
    message = TALKS.open(
        heard.payload, mesh=session.mesh, subject=heard.subject, now_ms=session.wall.now_ms()
    )
    return None if isinstance(message, Refused) else message.body


async def _say(session: Session, where: str, talk: Talk) -> None:
    signer = (session.author.did, session.author.vouch)
    payload = TALKS.sign(
        talk, signer, mesh=session.mesh, subject=where, at_ms=session.wall.now_ms()
    )
    await session.engine.bus.publish(where, payload)


def _seen(answer: asyncio.Future[str]) -> None:
    """An answer that nobody waits for is no error."""
    with suppress(asyncio.CancelledError):
        answer.exception()
