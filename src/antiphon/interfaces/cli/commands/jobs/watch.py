"""`antiphon watch`: one line per record as it is written, with its verdict."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self

import typer

from antiphon.errors import AntiphonError
from antiphon.interfaces.cli.screen.command import command, fields
from antiphon.interfaces.cli.screen.command_loop import Stop
from antiphon.interfaces.cli.screen.options import print_json, short
from antiphon.interfaces.cli.screen.terminal import (
    GLYPHS,
    STYLES,
    Piece,
    clock,
    counted,
    err,
    out,
    state_piece,
)
from antiphon.interfaces.cli.shared.wait import progress_words

if TYPE_CHECKING:
    from antiphon.sdk.mesh import Event, Events, Mesh
    from antiphon.sdk.tempo.tempo_history import TempoHistory


LINES_PER_S: Final = 50
"""More records than this in one second are counted, and neither verified nor shown."""
LISTENED: Final = 8
"""Jobs that are subscribed to at once; the progress of others is not shown."""
SHOWN_EVERY_S: Final = 0.1
Key = tuple[str, str]
TICKER_LINES_PER_S: Final = 30
"""The same below `antiphon dev` and `antiphon up`."""


@command
async def watch(
    mesh: Mesh,
    stop: Stop,
    as_json: bool,
    *,
    limit: int | None = typer.Option(
        None,
        min=0,
        show_default=False,
        help="Show at most this many records a second and count the rest; 0: all. "
        f"Default: {LINES_PER_S}, and all with --json.",
    ),
) -> None:
    """Follow the mesh live.

    One line for each record: what happened, to which job, and whether it was accepted. On a
    terminal the last line shows the progress that running jobs report.

    Records beyond 50 in a second are counted and not verified, so that watching a busy mesh does
    not slow it down. With --json every record is printed, unless you give --limit.
    """
    if limit is None:
        limit = 0 if as_json else LINES_PER_S
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(_follow(mesh, limit or None, as_json=as_json))
        await stop.wait()
        following.cancel()


async def _follow(mesh: Mesh, per_s: int | None, *, as_json: bool) -> None:
    stamps = _Stamps(mesh)
    async with mesh.watching(per_s=per_s) as batches, Progressing(mesh) as progress:
        if not as_json:
            err.pieces((f"watching mesh {mesh.id}; Ctrl-C stops it", "quiet"))
        async for batch in batches:
            if as_json:
                _print_batch(batch, await stamps.newest())
                continue
            err.erase()
            if batch.left_out:
                err.pieces((f"… and {batch.left_out:,} more in this second", "quiet"))
            for event in batch:
                say_event(event)
                progress.note(event)
            progress.show()


class _Stamps:
    """The beats of what is watched; looked up again after a second, as the tempo may change."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._known: TempoHistory | None = None
        self._looked_s = 0.0

    async def newest(self) -> TempoHistory:
        now_s = time.monotonic()
        if self._known is None or now_s - self._looked_s >= 1:
            self._known, self._looked_s = await self._mesh.tempo.history(), now_s
        return self._known


def _print_batch(batch: Events, stamps: TempoHistory) -> None:
    if batch.left_out:
        print_json({"left_out": batch.left_out})
    for event in batch:
        beat = fields(stamps.at(event.at_ms), "beat", "phase")
        print_json({**event_object(event), **beat})


def say_event(event: Event) -> None:
    """Print one event as a line."""
    if not event.verdict.is_accepted:
        mark: Piece = ("✗ ", "failed")
    elif event.state in STYLES and event.state:
        mark = (f"{GLYPHS[event.state]} ", event.state)
    else:
        mark = ("· ", "")
    subject = f"{short(event.job_id)} {event.kind}  " if event.job_id else "mesh  "
    out.hanging(
        [(f"{clock(event.at_ms)} ", "quiet"), mark], [(subject, "strong"), (event.words, "")]
    )


def event_object(event: Event) -> dict[str, object]:
    """One event as JSON."""
    return {
        **fields(event, "seq", "at_ms", "hlc", "op", "family", "kind", "author", "state", "words"),
        "job": event.job_id,
        "verdict": event.verdict.value,
        "accepted": event.verdict.is_accepted,
    }


class Ticker:
    """Prints one line per event; above the limit it counts them."""

    def __init__(self) -> None:
        self._second = 0
        self._shown = 0
        self._unshown = 0

    def event(self, event: Event) -> None:
        """Show one event, or count it."""
        second = int(time.monotonic())
        if second != self._second:
            if self._unshown:
                err.pieces((f"… and {counted(self._unshown, 'record')} more", "quiet"))
            self._second, self._shown, self._unshown = second, 0, 0
        if self._shown < TICKER_LINES_PER_S:
            self._shown += 1
            say_event(event)
        else:
            self._unshown += 1


class Progressing:
    """The progress that running jobs report, newest first."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._listeners: dict[Key, asyncio.Task[None]] = {}
        self._said: dict[Key, str] = {}
        self._shown_s = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        err.erase()
        for listener in self._listeners.values():
            listener.cancel()
        await asyncio.gather(*self._listeners.values(), return_exceptions=True)

    def note(self, event: Event) -> None:
        """Subscribe to a job that runs now; unsubscribe from one that does not."""
        key = (event.kind, event.job_id)
        if event.is_held and err.can_rewrite:
            if key not in self._listeners and len(self._listeners) < LISTENED:
                self._listeners[key] = asyncio.ensure_future(self._listen(key))
        elif key in self._listeners:
            self._listeners.pop(key).cancel()
            self._said.pop(key, None)

    async def _listen(self, key: Key) -> None:
        with suppress(AntiphonError):
            async with self._mesh.job(*key).listen() as words:
                async for one in words:
                    said = progress_words(one)
                    if said and key in self._listeners:
                        self._said.pop(key, None)
                        self._said[key] = said
                        if time.monotonic() - self._shown_s >= SHOWN_EVERY_S:
                            self.show()

    def show(self) -> None:
        """Show the newest progress, and how many other jobs reported some."""
        self._shown_s = time.monotonic()
        if not self._said:
            return
        (kind, job), said = list(self._said.items())[-1]
        others = len(self._said) - 1
        more = f"  (and {others} more)" if others else ""
        err.fading(state_piece("running"), (f"  {kind} {short(job)}, {said}{more}", "quiet"))
