"""Waits for a job's end, and says what it waits for.

After a few seconds it asks which workers are online: where none runs the job's kind, it warns with
`NobodyAnswers` and goes on waiting, since a worker may still come. `warnings.simplefilter("error",
NobodyAnswers)` makes it an error.
"""

from __future__ import annotations

import asyncio
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from antiphon.core.families.jobs.state import State, job_key
from antiphon.errors import AntiphonError, NobodyAnswers
from antiphon.runtime.caller import submission
from antiphon.sdk.defaults import ROLL_CALL_S
from antiphon.sdk.durations import seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.core.families.jobs.state import Job
    from antiphon.core.presence.cards import Card
    from antiphon.core.record.branches import LaneKey
    from antiphon.runtime.caller.submission import Ended
    from antiphon.runtime.log.session import Session
    from antiphon.sdk.call_options import Duration

DIAGNOSIS_AFTER_S: Final = 2.0
LAST_LOOK_S: Final = 1.0
"""How long the state is read for the error, once the time is over."""
CLOSE: Final = 0.8


async def wait_for_end(session: Session, kind: str, job_id: str, limit: Duration | None) -> Ended:
    """The end of a job. TimeoutError, with what it waited for, if it comes too late."""
    loop = asyncio.get_running_loop()
    limit_s = None if limit is None else seconds(limit)
    ends_s = None if limit_s is None else loop.time() + limit_s

    def left() -> float | None:
        return None if ends_s is None else max(ends_s - loop.time(), 0)

    waiting = asyncio.ensure_future(submission.wait_for_end(session, kind, job_id))
    asking: asyncio.Future[list[str]] | None = None
    try:
        first_s = DIAGNOSIS_AFTER_S if limit_s is None else min(DIAGNOSIS_AFTER_S, limit_s)
        await asyncio.wait([waiting], timeout=first_s)
        if not waiting.done() and left() != 0:
            asking = asyncio.ensure_future(_diagnosed(session, kind, job_id))
            await asyncio.wait(
                [waiting, asking], timeout=left(), return_when=asyncio.FIRST_COMPLETED
            )
            if asking.done() and asking.exception() is None and asking.result():
                warnings.warn(NobodyAnswers("; ".join(asking.result())), stacklevel=3)
            await asyncio.wait([waiting], timeout=left())
        if not waiting.done():
            late = await _what_it_waited_for(session, kind, job_id)
            raise TimeoutError(f"job {job_id[:8]} ({kind}) has not ended in {limit_s:g} s: {late}")
        return waiting.result()
    finally:
        for task in (waiting, asking):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])


async def _diagnosed(session: Session, kind: str, job_id: str) -> list[str]:
    found = await diagnosed(session, [job_key(kind, job_id)])
    return found[0] if found else []


async def diagnosed(session: Session, jobs: Sequence[LaneKey]) -> list[list[str]]:
    """For each of these jobs that no worker which is online can run: why, and what to do."""
    lanes = [(await session.read_lane(key.kind, key.name)).lane for key in jobs]
    waiting = [lane.job for lane in lanes if lane.job is not None]
    waiting = [job for job in waiting if job.state is State.PENDING and not job.attempts]
    if not waiting:
        return []
    from antiphon.runtime.presence.live_nodes import cards_of_live

    cards = await cards_of_live(session, wait_s=ROLL_CALL_S)
    return [lines for job in waiting if (lines := unanswered(job, cards))]


async def _what_it_waited_for(session: Session, kind: str, job_id: str) -> str:
    lines: list[str] = []
    try:
        async with asyncio.timeout(LAST_LOOK_S):
            job = (await session.read_lane(kind, job_id)).lane.job
    except (AntiphonError, TimeoutError):
        return "the engine does not answer"
    if job is None:
        return "there is no such job on the log"
    with suppress(AntiphonError, TimeoutError):
        async with asyncio.timeout(LAST_LOOK_S):
            lines = await _diagnosed(session, kind, job_id)
    words = f"it is {job.state.value}"
    if job.attempts:
        words += f", and {job.attempts} of {job.attempts_max} attempts failed"
    return "; ".join([words, *lines])


def unanswered(job: Job, cards: Sequence[Card], *, is_command: bool = False) -> list[str]:
    """Why no worker may have claimed a job, and what to do; nothing if one that is online can."""
    if any(job.kind in card.kinds for card in cards):
        return []
    from difflib import get_close_matches

    lines = [f"no worker that is online runs {job.kind}"]
    answered = sorted({kind for card in cards for kind in card.kinds})
    close = get_close_matches(job.kind, answered, n=1, cutoff=CLOSE)
    if close:
        lines.append(f"did you mean {close[0]}? to cancel: antiphon cancel {job.id[:8]}")
    elif answered:
        lines.append(f"workers run: {', '.join(answered)}")
    if is_command:
        lines.append(
            f"try: antiphon worker --commands {job.kind}, on the machine that should run it"
        )
    else:
        lines.append("try: antiphon worker MODULE, with a module that has this task")
    return lines
