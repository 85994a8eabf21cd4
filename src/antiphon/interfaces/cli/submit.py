"""`antiphon submit`: call a job and, unless told otherwise, wait for its answer.

The result goes to standard output and nothing else does, so that it can be piped; the job's id,
its progress and what may be wrong go to standard error.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from antiphon.errors import AntiphonError, JobFailed, Rejected, Unavailable
from antiphon.interfaces.cli import life
from antiphon.interfaces.cli.completion import complete_kind
from antiphon.interfaces.cli.exits import Exit, WrongUsage
from antiphon.interfaces.cli.options import HomeOption, JsonOption, open_mesh, print_json, short
from antiphon.interfaces.cli.terminal import Piece, counted, err, out, span, state_piece

if TYPE_CHECKING:
    from antiphon.sdk.handles import JobHandle
    from antiphon.sdk.mesh import Card, Job, Mesh
    from antiphon.sdk.tasks import CallOptions

PATIENCE_S: Final = 3.0
"""How long a job may lie unanswered before we say what could be wrong."""
CLOSE: Final = 0.8
"""How alike two kinds must be for one to be a misspelling of the other."""
PROGRESS_AFTER_S: Final = 0.3
PROGRESS_EVERY_S: Final = 0.25


def submit(  # noqa: PLR0913 - each option is one argument
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="What to call, such as example.add.",
            show_default=False,
            autocompletion=complete_kind,
        ),
    ],
    args: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ARGS",
            help="Arguments as JSON; a plain word is text. Put -- before negative numbers.",
            show_default=False,
        ),
    ] = None,
    *,
    kw: Annotated[
        list[str] | None,
        typer.Option("--kw", metavar="NAME=JSON", help="An argument by name; may be repeated."),
    ] = None,
    urgency: Annotated[
        int,
        typer.Option("--class", min=0, max=2, help="0 urgent, 1 normal, 2 whenever."),
    ] = 1,
    once: Annotated[
        bool,
        typer.Option("--once", help="The same call is the same job: run it once, ever."),
    ] = False,
    timeout: Annotated[
        int, typer.Option(min=1, metavar="SECONDS", help="How long one attempt may run.")
    ] = 3600,
    attempts: Annotated[
        int | None,
        typer.Option(min=1, help="Tries before it counts as failed. Default: the mesh's rule."),
    ] = None,
    lease: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="How long a silent worker keeps the job. Default: the mesh's rule.",
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait for the result, or print the job's id.")
    ] = True,
    wait_timeout: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="Stop waiting after this long; the job goes on."
        ),
    ] = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> int:
    """Call a job and print its result.

    \b
    Examples:
      antiphon submit example.add 2 3
      antiphon submit example.echo '{"a": [1, 2]}'
      antiphon submit example.sleep --kw seconds=5 --no-wait
    """  # noqa: D301 - \b keeps the lines apart
    values = [parse_value(text) for text in args or ()]
    named = dict(_parse_named(text) for text in kw or ())
    mesh = open_mesh(home)

    from antiphon.sdk.tasks import CallOptions

    options = CallOptions(
        once=once,
        timeout_s=timeout,
        urgency=urgency,  # type: ignore[arg-type]
        attempts=attempts,
        lease_ms=None if lease is None else round(lease * 1000),
    )
    return life.run(_submit(mesh, kind, values, named, options, _Wish(wait, wait_timeout, as_json)))


class _Wish:
    """How the person wants to be answered."""

    def __init__(self, wait: bool, timeout_s: float | None, as_json: bool) -> None:
        self.wait = wait
        self.timeout_s = timeout_s
        self.as_json = as_json


# --- arguments --------------------------------------------------------------------------------


def parse_value(text: str) -> Any:
    """A JSON value, or the text itself where it is plainly a word."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as problem:
        if text[:1] in {"{", "[", '"'}:
            raise WrongUsage(
                f"{text!r} looks like JSON and is not: {problem}",
                hint="put single quotes around JSON in a shell: '{\"a\": 1}'",
            ) from problem
        return text


def _no_constant(name: str) -> Any:
    raise ValueError(name)  # NaN and Infinity are not JSON, whatever Python thinks: words


def _parse_named(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise WrongUsage(f"{text!r} is not NAME=JSON", hint="such as --kw seconds=5")
    return name, parse_value(value)


# --- calling and waiting ----------------------------------------------------------------------


async def _submit(
    mesh: Mesh,
    kind: str,
    args: list[Any],
    kwargs: dict[str, Any],
    options: CallOptions,
    wish: _Wish,
) -> int:
    began = time.monotonic()
    async with mesh:
        try:
            handle = await mesh.call(kind, args, kwargs, options=options)
        except Rejected as refused:
            refused.hint = refused.hint or _bounds(refused.reason, mesh)
            raise
        if not wish.wait:
            return _called(handle, wish)
        before = None if handle.is_new else await handle.state()
        if before is not None:
            _say_known(before, wish)
        try:
            result = await _wait(mesh, handle, wish)
        except asyncio.CancelledError:
            if not wish.as_json:
                err.erase()
                err.say("the job goes on: ", f"antiphon show {short(handle.id)}")
            raise
        except JobFailed as failed:
            if before is not None and before.is_terminal:
                failed.hint = "leave out --once to call it anew"
            if not wish.as_json:
                raise
            _print_end(await handle.state(), failed=failed)
            return Exit.FAILED
        job = await handle.state()
    if wish.as_json:
        _print_end(job, result=result, is_new=handle.is_new)
        return Exit.OK
    if before is None or not before.is_terminal:
        took = time.monotonic() - began
        err.pieces(
            state_piece("succeeded"), (f"  {job.kind} {short(job.job)} in {span(took)}", "quiet")
        )
    print_result(result)
    return Exit.OK


def _bounds(reason: str, mesh: Mesh) -> str:
    """What the mesh's rules would have allowed."""
    rules = mesh.peer.control.rules
    match reason:
        case "lease":
            low, high = rules.lease_min_ms / 1000, rules.lease_max_ms / 1000
            return f"a lease between {low:g} and {high:g} s"
        case "attempts":
            return f"at most {rules.attempts_max} attempts"
        case _:
            return ""


def _called(handle: JobHandle[Any], wish: _Wish) -> int:
    if wish.as_json:
        print_json({"job": handle.id, "kind": handle.kind, "is_new": handle.is_new})
        return Exit.OK
    if not handle.is_new:
        err.say("already called; nothing new was scheduled")
    print(handle.id)
    return Exit.OK


def _say_known(job: Job, wish: _Wish) -> None:
    if wish.as_json:
        return
    if job.state == "succeeded":
        err.say("✓ already done", f"  {job.kind} {short(job.job)}", style="succeeded")
    elif not job.is_terminal:
        err.say(f"already called: waiting for {short(job.job)}, which is {job.state.value}")


def _print_end(
    job: Job, *, is_new: bool = True, failed: JobFailed | None = None, **more: Any
) -> None:
    told: dict[str, Any] = {
        "job": job.job,
        "kind": job.kind,
        "state": job.state.value,
        "outcome": job.outcome,
        "attempts": job.attempts,
        "seconds": (job.ended_ms - job.scheduled_ms) / 1000,
        "is_new": is_new,
        **more,
    }
    if failed is not None:
        told["error"] = {
            "kind": "JobFailed",
            "message": failed.message,
            "reason": failed.reason,
            "hint": failed.hint,
        }
    print_json(told)


def print_result(result: Any) -> None:
    """A result for people and pipes: text as it is, line by line; anything else as JSON."""
    if isinstance(result, str):
        for line in result.split("\n"):
            out.say(line)
    else:
        out.say(json.dumps(result, ensure_ascii=False))


async def _wait(mesh: Mesh, handle: JobHandle[Any], wish: _Wish) -> Any:
    """The result. Its failure is raised outside the task group, which would wrap it."""
    result: Any = None
    problem: AntiphonError | None = None
    async with asyncio.TaskGroup() as tasks:
        narrator = None if wish.as_json else tasks.create_task(_narrate(mesh, handle))
        try:
            result = await handle.result(timeout_s=wish.timeout_s)
        except TimeoutError:
            problem = Unavailable(
                f"job {short(handle.id)} did not end within {wish.timeout_s:g} s; it goes on",
                hint=f"antiphon show {short(handle.id)}",
            )
        except AntiphonError as error:
            problem = error
        finally:
            if narrator is not None:
                narrator.cancel()
    if problem is not None:
        raise problem
    return result


async def _narrate(mesh: Mesh, handle: JobHandle[Any]) -> None:
    """Say what the job is doing while somebody waits for it."""
    began = time.monotonic()
    has_asked = False
    await asyncio.sleep(PROGRESS_AFTER_S)
    try:
        while True:
            with suppress(Unavailable):
                job = await handle.state()
                waited = time.monotonic() - began
                err.fading(*_progress(job, waited))
                if not has_asked and job.state == "pending" and waited > PATIENCE_S:
                    has_asked = True
                    _say_diagnosis(job, await mesh.nodes())
            await asyncio.sleep(PROGRESS_EVERY_S)
    finally:
        err.erase()


def _progress(job: Job, waited_s: float) -> list[Piece]:
    words = f"  {job.kind} {short(job.job)}, {span(waited_s)}"
    if job.attempts:
        words += f", {job.attempts} of {job.attempts_max} attempts failed"
    return [state_piece(job.state.value), (words, "quiet")]


def _say_diagnosis(job: Job, cards: list[Card]) -> None:
    """Why nobody may have answered, and what to type."""
    from difflib import get_close_matches

    err.erase()
    if job.attempts:
        return  # it was answered; it failed and waits for its next attempt
    able = [card for card in cards if job.kind in card.kinds]
    if able:
        free = sum(card.slots - card.busy for card in able)
        if free <= 0:
            err.say(
                f"waiting: {counted(len(able), 'worker')} for {job.kind}, and every slot is busy"
            )
        return
    err.say("waiting: ", f"nobody who answers the roll call runs {job.kind}")
    answered = sorted({kind for card in cards for kind in card.kinds})
    close = get_close_matches(job.kind, answered, n=1, cutoff=CLOSE)
    if close:
        err.say("  did you mean ", f"{close[0]}?", f"  antiphon cancel {short(job.job)}")
    elif answered:
        err.say("  answered here: ", ", ".join(answered))
    err.say("  try: ", "antiphon worker MODULE, with a module that has this task")
    err.say("  the job stays on the log; Ctrl-C stops the waiting only")
