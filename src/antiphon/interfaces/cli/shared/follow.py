"""Following a command's job: prints its output as it comes, then exits with its exit code.

Standard output and standard error are the command's. Messages about the job go to standard
error, and only if that is a terminal or something is wrong.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from antiphon.errors import AntiphonError, Corrupt, JobFailed, Unavailable
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import print_json, short
from antiphon.interfaces.cli.screen.terminal import err, span, state_piece
from antiphon.interfaces.cli.screen.text_output import JobStream
from antiphon.interfaces.cli.shared.wait import (
    WaitOptions,
    end_facts,
    narrate,
    output_object,
    progress_words,
    say_it_keeps_running,
    say_known,
    say_submitted,
    wait_timed_out,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from antiphon.sdk.handle import Ended, JobHandle, OutputMessage
    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.results.transcript import Transcript

SIGNAL_BASE: Final = 128
LAST_WORDS_S: Final = 0.2
"""How long a job's end waits for output that was sent before it."""


class Screen:
    """Prints the output of one job."""

    def __init__(self) -> None:
        from antiphon.sdk.results.transcript import Transcript

        self.transcript: Transcript = Transcript()
        self._streams = {name: JobStream(name) for name in ("stdout", "stderr")}
        self.progress = ""

    async def show(self, words: AsyncIterator[OutputMessage]) -> None:
        """Print live output until cancelled."""
        async for one in words:
            if self.transcript.begins_anew(one):
                err.erase()
                err.say("the worker gave it back; it runs again")
            self.progress = progress_words(one) or self.progress
            data = self.transcript.hear(one)
            if data:
                err.erase()
                self._streams[one.stream].write(data)

    async def show_rest(self, mesh: Mesh, handle: JobHandle[Any], ended: Ended) -> None:
        """Print what the live output missed."""
        try:
            for output in ended.outputs:
                if output.name not in self._streams:
                    continue
                try:
                    async for chunk in self.transcript.rest(mesh, handle, output):
                        self._streams[output.name].write(chunk)
                except Corrupt as problem:
                    words = f"{problem.message}; for the whole output: {problem.hint}"
                    err.say("✗ ", words, style="failed")
        finally:
            for stream in self._streams.values():
                stream.end()


async def follow(
    mesh: Mesh,
    name: tuple[str, str],
    call: Callable[[], Awaitable[JobHandle[Any]]],
    wait_options: WaitOptions,
    *,
    is_live: bool,
) -> int:
    """Submit a command's job, whose kind and id are known already, and wait for its end.

    The output of a job with several attempts is not shown live: each attempt prints it again.
    """
    began = time.monotonic()
    screen = Screen()
    async with AsyncExitStack() as stack:
        words: AsyncIterator[OutputMessage] | None = None
        if wait_options.wait and is_live and not wait_options.as_json:
            # Before the job is submitted, so that nothing is missed.
            with suppress(Unavailable):
                words = await stack.enter_async_context(mesh.job(*name).listen())
        handle = await call()
        before = None if handle.is_new else await handle.state()
        if not wait_options.as_json:
            for label, text in wait_options.notes.items():
                err.say(f"{label} ", text)
        if not wait_options.wait:
            return await say_submitted(mesh, handle, before, wait_options, is_command=True)
        if before is not None:
            say_known(before, wait_options)
        ended = await _await_end(mesh, handle, wait_options, screen, words)
    if not wait_options.as_json:
        await screen.show_rest(mesh, handle, ended)
    was_known = before is not None and before.is_terminal
    return await _tell_end(handle, ended, wait_options, began=began, was_known=was_known)


async def _await_end(
    mesh: Mesh,
    handle: JobHandle[Any],
    wait_options: WaitOptions,
    screen: Screen,
    words: AsyncIterator[OutputMessage] | None,
) -> Ended:
    """Wait for the end. Errors are raised outside the task group, which would wrap them."""
    problem: AntiphonError | None = None
    ended: Ended | None = None
    try:
        async with asyncio.TaskGroup() as tasks:
            beside = []
            if words is not None:
                beside.append(tasks.create_task(screen.show(words)))
            telling = narrate(
                mesh,
                handle,
                is_quiet=lambda: wait_options.as_json or not screen.transcript.is_empty,
                progress=lambda: screen.progress,
                is_command=True,
            )
            beside.append(tasks.create_task(telling))
            try:
                ended = await handle.end(timeout=wait_options.timeout_s)
            except TimeoutError:
                problem = wait_timed_out(handle, wait_options)
            except AntiphonError as error:
                problem = error
            finally:
                for task in beside:
                    task.cancel()
    except asyncio.CancelledError:
        if not wait_options.as_json:
            say_it_keeps_running(handle)
        raise
    if ended is None:
        raise problem or Unavailable("the log ended before the job did")
    return ended


# --- show --follow ------------------------------------------------------------------------------


class LiveOutput:
    """Prints a job's messages as they come.

    They are not stored on their way, so what was printed before is not shown, and a gap is named.
    """

    def __init__(self) -> None:
        self.has_printed = False
        self.progress = ""
        self._fence = ""
        self._at: dict[str, int] = {}
        self._streams = {name: JobStream(name) for name in ("stdout", "stderr")}

    def hear(self, words: OutputMessage) -> None:
        """Print one message."""
        self.progress = progress_words(words) or self.progress
        if not words.stream or not words.data:
            return
        err.erase()
        if self._fence and words.fence != self._fence:
            err.say("it runs again")
        if words.fence != self._fence:
            self._fence, self._at = words.fence, {}
        missed = words.at - self._at.get(words.stream, 0)
        if missed > 0:
            where = "were lost on the way" if words.stream in self._at else "came before this"
            err.say(f"… {missed:,} bytes of {words.stream} {where}")
        self._at[words.stream] = words.at + len(words.data)
        self.has_printed = True
        self._streams[words.stream].write(words.data)

    def end(self) -> None:
        """Leave the terminal at the start of a line."""
        for stream in self._streams.values():
            stream.end()


@asynccontextmanager
async def followed(mesh: Mesh, handle: JobHandle[Any]) -> AsyncIterator[None]:
    """Print a job's output while the block waits for its end, and its state until there is some."""
    shown = LiveOutput()
    heard = asyncio.Event()

    async def listen() -> None:
        with suppress(AntiphonError):
            async with handle.listen() as words:
                async for one in words:
                    heard.set()
                    shown.hear(one)

    telling = narrate(
        mesh, handle, is_quiet=lambda: shown.has_printed, progress=lambda: shown.progress
    )
    beside = [asyncio.ensure_future(listen()), asyncio.ensure_future(telling)]
    try:
        yield
        with suppress(TimeoutError):
            while True:
                heard.clear()
                await asyncio.wait_for(heard.wait(), LAST_WORDS_S)
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        shown.end()


# --- the end ----------------------------------------------------------------------------------


def exit_code_of(ended: Ended) -> int:
    """The job's exit code as a shell reports it; 1 if the job failed without one."""
    if ended.job.outcome == "succeeded":
        return ended.exit or Exit.OK
    if ended.exit is None or ended.exit == 0:
        return Exit.FAILED
    return ended.exit if ended.exit > 0 else SIGNAL_BASE - ended.exit


async def _tell_end(
    handle: JobHandle[Any],
    ended: Ended,
    wait_options: WaitOptions,
    *,
    began: float,
    was_known: bool,
) -> int:
    job, code = ended.job, exit_code_of(ended)
    failed: JobFailed | None = None
    if job.outcome != "succeeded":
        try:
            await handle.result()
        except JobFailed as why:
            failed = why
            if was_known:
                failed.message = f"this job already ran and is not run again: {failed.message}"
                failed.hint = wait_options.again_hint
    if wait_options.as_json:
        told = end_facts(job, wait_options, is_new=handle.is_new, failed=failed)
        if failed is not None:
            told["error"]["name"] = ended.error.name if ended.error is not None else ""
        outputs = [{**output_object(one), "text": one.text} for one in ended.outputs]
        print_json({**told, "exit": ended.exit, "code": code, "outputs": outputs})
        return code
    if failed is not None:
        err.hanging([("✗ ", "failed")], [(_without_last_words(failed, ended), "failed")])
        err.hanging([("  try: ", "")], [(failed.hint, "")])
        return code
    if not was_known and err.is_terminal:
        took = f"  {job.kind} {short(job.id)} in {span(time.monotonic() - began)}"
        err.pieces(state_piece("succeeded"), (took, "quiet"))
    files = [output.name for output in ended.outputs if output.name not in ("stdout", "stderr")]
    if files and err.is_terminal:
        names = ", ".join(files[:4]) + (f" and {len(files) - 4} more" if len(files) > 4 else "")  # noqa: PLR2004 - as many as fit a line
        err.pieces((f"  kept {names}: antiphon get {short(job.id)}", "quiet"))
    return code


def _without_last_words(failed: JobFailed, ended: Ended) -> str:
    """The message without the command's last lines, which were printed already."""
    error = ended.error
    if error is None or ended.exit is None:
        return failed.message
    news = error.message.partition(": ")[0] if ended.exit else error.message
    news = news if news.startswith("it ") else f"it {news}"
    return failed.message.replace(f"it failed: {error.name}: {error.message}", news)
