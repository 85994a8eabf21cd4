"""`antiphon resume`: ends a pause."""

from __future__ import annotations

from pathlib import Path

from antiphon.interfaces.cli.commands.authority.delegate import acting
from antiphon.interfaces.cli.commands.authority.pause import PausedJobs, PausedKind
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.terminal import err, out


@command
async def resume(home: Path | None, kind: PausedKind = "", *, jobs: PausedJobs) -> Answer:
    """End a pause: give the same words that 'antiphon pause' got.

    \b
      antiphon resume render
      antiphon resume --all
    """  # noqa: D301 - \b keeps the lines apart
    chosen = jobs.chosen(kind)
    if not any(chosen.values()) and not jobs.everything:
        raise WrongUsage("say what to resume", hint="antiphon pause lists what is paused")
    async with acting(home) as mesh:
        changed = await mesh.authority.resume(**chosen)
        left = mesh.authority.pauses

    def words() -> None:
        if changed.seq:
            mark, said = ("✓ ", "succeeded"), f"from record {changed.seq:,} on workers may begin "
            out.pieces(mark, (f"{said}{changed.before}", ""))
        else:
            out.say("nothing to do: there is no such pause")
        if left:
            err.say("  other pauses are in force: ", "antiphon pause lists them")

    return Answer({**chosen, "is_paused": False, "seq": changed.seq}, words)
