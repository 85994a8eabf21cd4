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
from antiphon.errors import AntiphonError, EngineDenied, NobodyAnswers, Unavailable
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
LAST_LOOK_S: Final = 5.0
"""How long the job's lane is read once the time is over: the end may be there."""
LAST_ASK_S: Final = 1.0
"""How long workers are asked for the error."""
CLOSE: Final = 0.8


async def wait_for_end(
    session: Session, kind: str, job_id: str, limit: Duration | None, *, is_known: bool = True
) -> Ended:
    """The end of a job. TimeoutError, with what it waited for, if it comes too late.

    `Rejected` if there is no such job, unless it `is_known` that there is. When the time is over
    the lane is read once more, so a limit of 0 is a question whether the job has ended.
    """
    loop = asyncio.get_running_loop()
    limit_s = None if limit is None else seconds(limit)
    if limit_s == 0:
        return await _end_now(session, kind, job_id, limit_s, is_known=is_known)
    ends_s = None if limit_s is None else loop.time() + limit_s

    def left() -> float | None:
        return None if ends_s is None else max(ends_s - loop.time(), 0)

    waiting = asyncio.ensure_future(
        submission.wait_for_end(session, kind, job_id, is_known=is_known)
    )
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
                warnings.warn(NobodyAnswers("; ".join(asking.result())), stacklevel=4)
            await asyncio.wait([waiting], timeout=left())
        if not waiting.done() and limit_s is not None:
            return await _end_now(session, kind, job_id, limit_s, is_known=is_known)
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
    waiting = [job for job in waiting if may_lack_workers(job)]
    if not waiting:
        return []
    from antiphon.runtime.presence.live_nodes import cards_of_live

    cards = await cards_of_live(session, wait_s=ROLL_CALL_S)
    return [lines for job in waiting if (lines := unanswered(session, job, cards))]


async def _end_now(
    session: Session, kind: str, job_id: str, limit_s: float, *, is_known: bool
) -> Ended:
    """The end if it is there, once the time is over; TimeoutError with what it waits for."""
    try:
        async with asyncio.timeout(LAST_LOOK_S):
            view = await submission.look(session, kind, job_id, is_known=is_known)
    except EngineDenied:
        raise
    except (Unavailable, TimeoutError):
        words = "the engine does not answer"
    else:
        ended = submission.ended_of(view)
        if ended is not None:
            return ended
        words = await _what_it_waits_for(session, view.lane.job, asks=limit_s > 0)
    raise TimeoutError(f"job {job_id[:8]} ({kind}) has not ended in {limit_s:g} s: {words}")


async def _what_it_waits_for(session: Session, job: Job | None, *, asks: bool) -> str:
    if job is None:
        return "there is no such job on the log"
    lines: list[str] = []
    if asks:
        with suppress(AntiphonError, TimeoutError):
            async with asyncio.timeout(LAST_ASK_S):
                lines = await _diagnosed(session, job.kind, job.id)
    words = f"it is {job.state.value}"
    if job.attempts:
        words += f", and {job.attempts} of {job.attempts_max} attempts failed"
    return "; ".join([words, *lines])


def may_lack_workers(job: Job) -> bool:
    """Whether it waits for workers, and none has run it yet."""
    return job.waits_for_replicas or (job.state is State.PENDING and not job.attempts)


def unanswered(
    session: Session, job: Job, cards: Sequence[Card], *, is_command: bool = False
) -> list[str]:
    """Why no worker may have claimed a job, and what to do; nothing if one that is online can."""
    from antiphon.runtime.caller.quorum_check import named, parties_online

    if paused := paused_words(session, job):
        return paused
    kind, parties = job.kind, parties_online(session, job.kind, cards)
    if parties and len(parties) >= job.quorum:
        return []
    if session.control.route_for(kind) is not None:
        return _routed(session, kind)
    if parties:
        return [
            f"{job.quorum} independent parties have to agree on {kind}, and workers of"
            f" {len(parties)} are online for it: {named(session, parties)}",
            "try: antiphon worker MODULE, on the machine of another member",
        ]
    if any(kind in card.kinds for card in cards):
        return [
            f"workers that are online run {kind}, but none of them may claim it",
            "try: antiphon who, which shows who may; antiphon delegate NODE --can claim",
        ]
    return _not_run(kind, job.id, cards, is_command=is_command)


def paused_words(session: Session, job: Job) -> list[str]:
    """Since when and why nobody may begin a job, and what to do; nothing if it is not paused."""
    pause = session.control.pause_of(job.kind, job.concurrency, job.plan_name)
    if pause is None:
        return []
    from antiphon.runtime.caller.holdings import holdings_of
    from antiphon.runtime.caller.pause_words import described, resumed_by

    return [described(pause, holdings_of(session)), f"try: {resumed_by(pause)}"]


def stuck_words(session: Session, kind: str) -> list[str]:
    """Why no worker whatever may claim a kind, and what to do; nothing if one may."""
    if session.control.route_for(kind) is None:
        return []
    from antiphon.runtime.caller.holdings import holdings_of, stuck_route

    stuck = stuck_route(holdings_of(session), kind)
    return [] if stuck is None else [stuck.words, f"try: {stuck.hint}"]


def _routed(session: Session, kind: str) -> list[str]:
    from antiphon.runtime.caller.holdings import holdings_of

    held, target = holdings_of(session), session.control.route_for(kind) or ""
    name = held.name(target)
    return stuck_words(session, kind) or [
        f"{kind} is routed to {name}, and no worker there that is online runs it",
        f"try: antiphon worker MODULE on {name}; antiphon route {kind} shows the route",
    ]


def _not_run(kind: str, job_id: str, cards: Sequence[Card], *, is_command: bool) -> list[str]:
    from difflib import get_close_matches

    what = f"commands of kind {kind}" if is_command else kind
    lines = [f"no worker that is online runs {what}"]
    answered = sorted({one for card in cards for one in card.kinds})
    close = get_close_matches(kind, answered, n=1, cutoff=CLOSE)
    if close:
        lines.append(f"did you mean {close[0]}? to cancel: antiphon cancel {job_id[:8]}")
    elif answered:
        lines.append(f"workers run: {', '.join(answered)}")
    if is_command:
        lines += [
            f"a worker runs them with --commands {kind}, on Linux with bubblewrap (apt install"
            " bubblewrap; antiphon doctor says whether it works)",
            f"try: antiphon worker --commands {kind}, or without a sandbox: antiphon worker"
            f" --commands {kind} --unsafe-no-sandbox",
        ]
    else:
        lines.append("try: antiphon worker MODULE, with a module that has this task")
    return lines
