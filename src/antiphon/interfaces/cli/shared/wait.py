"""Waiting for a job: the progress that is shown meanwhile, and how its end is printed."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from antiphon.errors import AntiphonError, JobFailed, Unavailable
from antiphon.interfaces.cli.screen.command import fields
from antiphon.interfaces.cli.screen.durations import wait_in_words
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import print_json, short
from antiphon.interfaces.cli.screen.terminal import Piece, counted, err, out, span, state_piece
from antiphon.interfaces.cli.shared.outbox_words import say_sent, say_tentative

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from antiphon.sdk.artifacts.namespace import Output
    from antiphon.sdk.handle import JobHandle, OutputMessage, Progress
    from antiphon.sdk.mesh import Card, Job, Mesh

PATIENCE_S: Final = 3.0
"""How long a job may stay unclaimed before we print what may be wrong."""
QUORUM_PATIENCE_S: Final = 1.0
PROGRESS_AFTER_S: Final = 0.3
PROGRESS_EVERY_S: Final = 0.25
SILENCE_S: Final = 2.0
"""How long the engine may leave a question unanswered before we print that."""


class WaitOptions(NamedTuple):
    """How the user wants to wait, and what to print."""

    wait: bool
    timeout_s: float | None
    as_json: bool
    again_hint: str
    """What to type to run an ended job as a new one."""
    notes: dict[str, str]
    """What else to print, by name."""


async def answer(mesh: Mesh, handle: JobHandle[Any], wait_options: WaitOptions) -> int:
    """Wait for a submitted job, print its end, and return the exit code."""
    say_sent(mesh, as_json=wait_options.as_json)
    if handle.is_tentative:
        return _say_tentative(mesh, handle, wait_options)
    return await _answer(mesh, handle, wait_options)


async def _answer(mesh: Mesh, handle: JobHandle[Any], wait_options: WaitOptions) -> int:
    began = time.monotonic()
    before = None if handle.is_new else await handle.state()
    if not wait_options.as_json:
        for name, text in wait_options.notes.items():
            err.say(f"{name} ", text)
    if not wait_options.wait:
        return await say_submitted(mesh, handle, before, wait_options)
    if before is not None:
        say_known(before, wait_options)
    try:
        result = await _wait(mesh, handle, wait_options)
    except asyncio.CancelledError:
        if not wait_options.as_json:
            say_it_keeps_running(handle)
        raise
    except JobFailed as failed:
        if before is not None and before.is_terminal:
            failed.message = f"this job already ran and is not run again: {failed.message}"
            failed.hint = wait_options.again_hint
        if not wait_options.as_json:
            raise
        job = await handle.state()
        told = end_facts(job, wait_options, is_new=handle.is_new, failed=failed)
        print_json({**told, "attempts": job.tries})
        return Exit.FAILED
    job = await handle.state()
    if wait_options.as_json:
        told = end_facts(job, wait_options, is_new=handle.is_new)
        print_json({**told, "attempts": job.tries, "result": result})
        return Exit.OK
    if before is None or not before.is_terminal:
        took = time.monotonic() - began
        err.pieces(
            state_piece("succeeded"), (f"  {job.kind} {short(job.id)} in {span(took)}", "quiet")
        )
    print_result(result)
    return Exit.OK


def _say_tentative(mesh: Mesh, handle: JobHandle[Any], wait_options: WaitOptions) -> int:
    """Print that the job waits on this machine; whoever wanted its result has none."""
    if wait_options.as_json:
        told = {"job": handle.id, "kind": handle.kind, "is_new": True, "is_tentative": True}
        print_json({**told, **wait_options.notes})
    else:
        say_tentative("job", mesh.outbox.unreachable)
        if not wait_options.wait:
            print(handle.id, flush=True)
    return Exit.UNAVAILABLE if wait_options.wait else Exit.OK


async def say_submitted(
    mesh: Mesh,
    handle: JobHandle[Any],
    before: Job | None,
    wait_options: WaitOptions,
    *,
    is_command: bool = False,
) -> int:
    """Print the job's id for a user who does not wait, and a warning if nobody can run it now."""
    if wait_options.as_json:
        told = {"job": handle.id, "kind": handle.kind, "is_new": handle.is_new}
        print_json({**told, **wait_options.notes})
        return Exit.OK
    if before is not None:
        err.say(f"already submitted, and {before.state.value}; no new job was created")
        if before.is_terminal:
            err.say("  try: ", wait_options.again_hint)
    print(handle.id, flush=True)
    with suppress(AntiphonError):
        await _warn_if_nobody(mesh, handle, is_command=is_command)
    return Exit.OK


async def _warn_if_nobody(mesh: Mesh, handle: JobHandle[Any], *, is_command: bool) -> None:
    from antiphon.sdk.jobs.lacking_workers import lacking, online_soon

    cards, job = await asyncio.gather(online_soon(mesh), handle.state())
    lines = lacking(mesh, job, cards, is_command=is_command)
    if lines:
        _say_lines("warning: ", lines)
        err.say("  the job stays on the log, for a worker that can run it")


def _say_lines(head: str, lines: list[str]) -> None:
    first, *others = lines
    err.say(head, first)
    for line in others:
        err.say("  ", line)


def say_known(job: Job, wait_options: WaitOptions) -> None:
    """Print that the job was submitted before."""
    if wait_options.as_json:
        return
    if job.state == "succeeded":
        err.say("✓ already done", f"  {job.kind} {short(job.id)}", style="succeeded")
    elif not job.is_terminal:
        err.say(f"already submitted: waiting for {short(job.id)}, which is {job.state.value}")


def output_object(made: Output) -> dict[str, Any]:
    """An output as JSON."""
    return fields(made, "name", "size", "hash", "sha256", "type")


def end_facts(
    job: Job, wait_options: WaitOptions, *, is_new: bool, failed: JobFailed | None = None
) -> dict[str, Any]:
    """A job's end as JSON."""
    told = {
        "job": job.id,
        **fields(job, "kind", "outcome"),
        "state": job.state.value,
        "seconds": (job.ended_ms - job.scheduled_ms) / 1000,
        "is_new": is_new,
        **wait_options.notes,
    }
    if failed is not None:
        told["error"] = {"kind": "JobFailed", **fields(failed, "message", "reason", "hint")}
    return told


def print_result(result: Any) -> None:
    """Print a result: text as it is, line by line; anything else as JSON."""
    if isinstance(result, str):
        for line in result.split("\n"):
            out.verbatim(line)
    else:
        out.verbatim(json.dumps(result, ensure_ascii=False))


async def _wait(mesh: Mesh, handle: JobHandle[Any], wait_options: WaitOptions) -> Any:
    async with narrated(mesh, handle, is_brief=wait_options.as_json):
        try:
            return await handle.result(timeout=wait_options.timeout_s)
        except TimeoutError:
            raise wait_timed_out(handle, wait_options) from None


@asynccontextmanager
async def narrated(
    mesh: Mesh, handle: JobHandle[Any], *, is_brief: bool = False
) -> AsyncIterator[None]:
    """Show a job's state and progress while the block waits for it.

    Where a program reads the result (`is_brief`), only why nobody runs it, on standard error.
    """
    said: list[str] = [""]
    telling = narrate(mesh, handle, is_quiet=lambda: is_brief, progress=lambda: said[0])
    beside = [asyncio.ensure_future(telling)]
    if err.can_rewrite and not is_brief:
        beside.append(asyncio.ensure_future(_hear_progress(handle, said)))
    try:
        yield
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


def say_it_keeps_running(handle: JobHandle[Any]) -> None:
    """Tell a user who stops waiting what happens to the job."""
    err.erase()
    err.say("")
    err.say("the job keeps running: ", f"antiphon show {short(handle.id)}")
    err.say("  to cancel it: ", f"antiphon cancel {short(handle.id)}")


def wait_timed_out(handle: JobHandle[Any], wait_options: WaitOptions) -> Unavailable:
    """The error for a wait that timed out before the job ended."""
    return Unavailable(
        f"job {short(handle.id)} did not end within {wait_options.timeout_s:g} s;"
        " it is not cancelled",
        hint=f"antiphon why {short(handle.id)}, which shows who has it or what it waits for",
    )


async def _hear_progress(handle: JobHandle[Any], said: list[str]) -> None:
    """Keep the newest progress that the job reports."""
    with suppress(AntiphonError):
        async with handle.listen() as words:
            async for one in words:
                said[0] = progress_words(one) or said[0]


def progress_words(words: OutputMessage | Progress) -> str:
    """A progress report as text; empty if the message is about something else."""
    return f"{words.done:.0%} {words.note}".strip() if words.done is not None else ""


async def narrate(
    mesh: Mesh,
    handle: JobHandle[Any],
    *,
    is_quiet: Callable[[], bool] = lambda: False,
    progress: Callable[[], str] = lambda: "",
    is_command: bool = False,
) -> None:
    """Show what the job is doing while a person waits for it.

    While `is_quiet`, nothing is shown: the screen has the job's own output. `progress` is what
    the job reports.
    """
    began = heard = time.monotonic()
    has_looked = has_asked = False
    await asyncio.sleep(PROGRESS_AFTER_S)
    asking = asyncio.ensure_future(handle.state())
    try:
        while True:
            await asyncio.wait({asking}, timeout=SILENCE_S)
            now = time.monotonic()
            with suppress(Unavailable):
                if asking.done():
                    job, heard = asking.result(), now
                    if not is_quiet():
                        err.fading(*_progress(job, now - began, progress()))
                    if not has_looked and job.state == "pending":
                        has_looked, has_asked = True, _say_if_stuck(mesh, job)
                    if not has_asked and _waits_long(job, now - began):
                        has_asked = True
                        _say_diagnosis(
                            mesh, job, await mesh.presence.roll_call(), is_command=is_command
                        )
            if now - heard >= SILENCE_S and not is_quiet():
                err.fading(*_silence(handle, now - heard))
            if asking.done():
                await asyncio.sleep(PROGRESS_EVERY_S)
                asking = asyncio.ensure_future(handle.state())
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        if not is_quiet():
            err.erase()


def _waits_long(job: Job, waited_s: float) -> bool:
    """Whether it is time to look for what may be wrong; that a quorum cannot be is said sooner."""
    patience_s = QUORUM_PATIENCE_S if job.waits_for_replicas else PATIENCE_S
    return waited_s > patience_s and (job.state == "pending" or job.waits_for_replicas)


def _silence(handle: JobHandle[Any], since_s: float) -> list[Piece]:
    """The progress line while the engine does not answer."""
    words = f"  {handle.kind} {short(handle.id)}; the job stays on the log; still waiting"
    return [(f"no answer from the engine for {span(since_s)}", "failed"), (words, "quiet")]


def _progress(job: Job, waited_s: float, said: str) -> list[Piece]:
    words = f"  {job.kind} {short(job.id)}, {span(waited_s)}"
    if job.waits_for_time_alone:
        words += f", {wait_in_words(job.not_before_ms, time.time())}"
    if said:
        words += f", {said}"
    if job.attempts:
        words += f", {job.attempts} of {counted(job.attempts_max, 'attempt')} failed"
    return [state_piece(job.state.value), (words, "quiet")]


def _say_if_stuck(mesh: Mesh, job: Job) -> bool:
    """Print at once why nobody may ever claim the job; whether that is so."""
    from antiphon.sdk.jobs.lacking_workers import stuck

    lines = stuck(mesh, job)
    if lines:
        _say_waiting(lines)
    return bool(lines)


def _say_waiting(lines: list[str]) -> None:
    err.erase()
    _say_lines("waiting: ", lines)
    err.say("  the job stays on the log; Ctrl-C only stops waiting")


def _say_diagnosis(mesh: Mesh, job: Job, cards: list[Card], *, is_command: bool) -> None:
    """Print why no worker may have claimed the job, and what to type."""
    from antiphon.sdk.jobs.lacking_workers import lacking

    err.erase()
    if job.attempts:
        return  # a worker ran it; it failed and waits for its next attempt
    lines = lacking(mesh, job, cards, is_command=is_command)
    if lines:
        _say_waiting(lines)
        return
    able = [card for card in cards if job.kind in card.kinds]
    if sum(card.slots - card.busy for card in able) <= 0:
        err.say(f"waiting: {counted(len(able), 'worker')} for {job.kind}, and all slots are busy")
