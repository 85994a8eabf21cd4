"""`antiphon pause`: lets nobody begin some jobs, or lists what is paused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from antiphon.interfaces.cli.commands.authority.delegate import acting
from antiphon.interfaces.cli.screen.command import Answer, Options, command, fields
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import complete_kind
from antiphon.interfaces.cli.screen.options import open_mesh
from antiphon.interfaces.cli.screen.terminal import err, out

PausedKind = Annotated[
    str,
    typer.Argument(
        metavar="[KIND]",
        help="A kind, with all kinds below it.",
        show_default=False,
        autocompletion=complete_kind,
    ),
]


@dataclass(frozen=True)
class PausedJobs(Options):
    """Which jobs: those that have all of what is given."""

    label: str = typer.Option("", help="Only jobs with this label.")
    plan: str = typer.Option("", metavar="NAME", help="Only jobs that follow from this plan.")
    everything: bool = typer.Option(False, "--all", help="All jobs.")

    def chosen(self, kind: str) -> dict[str, str]:
        """What was given; nothing for all jobs."""
        found = {"kind": kind, "label": self.label, "plan": self.plan}
        if self.everything and any(found.values()):
            raise WrongUsage("--all is all jobs", hint="leave out --all, or everything else")
        return found


@command
async def pause(
    home: Path | None,
    kind: PausedKind = "",
    *,
    jobs: PausedJobs,
    reason: str = typer.Option("", help="Why; everybody who asks is told."),
) -> Answer:
    """Let nobody begin some jobs, or list what is paused.

    Workers keep the jobs that they hold, and finish them. Jobs can be submitted, and wait. The
    time to start by counts on.

    \b
      antiphon pause render --reason "the disk is full"
      antiphon pause --label gpu
      antiphon pause --all
    """  # noqa: D301 - \b keeps the lines apart
    chosen = jobs.chosen(kind)
    if not any(chosen.values()) and not jobs.everything:
        return await _list(home)
    async with acting(home) as mesh:
        changed = await mesh.authority.pause(**chosen, reason=reason)

    def words() -> None:
        if changed.seq:
            mark, said = ("✓ ", "succeeded"), f"from record {changed.seq:,} on nobody begins "
            out.pieces(mark, (f"{said}{changed.after}", ""))
        else:
            out.say(f"nothing to do: {changed.after} are paused")

    return Answer({**chosen, "is_paused": True, "seq": changed.seq}, words)


async def _list(home: Path | None) -> Answer:
    async with open_mesh(home) as mesh:
        held = await mesh.authority.who()
        found = mesh.authority.pauses

    def words() -> None:
        from antiphon.sdk.authority.pauses import described, resumed_by

        for one in found:
            out.say(described(one, held))
            err.say("  try: ", resumed_by(one))
        if not found:
            out.say("nothing is paused")

    listed = [fields(one, "kind", "label", "plan", "by", "since_ms", "reason") for one in found]
    return Answer({"pauses": listed}, words)
