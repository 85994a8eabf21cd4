"""What `cancel` and `retry` share where they act on many jobs: how many, and asking first."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from antiphon.interfaces.cli.screen.command import Options
from antiphon.interfaces.cli.screen.exits import Exit, WrongUsage
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import counted, err
from antiphon.sdk.defaults import MANY_MOST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.sdk.mesh import Job
    from antiphon.sdk.queries.many_jobs import Chosen, Done

KINDS_NAMED = 3
PROBLEMS_NAMED = 5


@dataclass(frozen=True)
class ManyOptions(Options):
    """How many jobs at once, and whether to ask."""

    limit: int = typer.Option(
        100, min=1, max=MANY_MOST, help="Of many jobs, at most this many; type it again for more."
    )
    yes: bool = typer.Option(False, "--yes", "-y", help="Do not ask before acting on many jobs.")

    def agreed(self, verb: str, chosen: Chosen, *, as_json: bool) -> bool:
        """Whether a person wants this, or said so beforehand; says what it is about."""
        if not chosen.jobs or self.yes:
            return True
        about = f"{verb} {counted(len(chosen.jobs), 'job')}: {_listed(chosen.jobs)}"
        if chosen.has_more:
            about += " (and there are more)"
        if as_json or not (sys.stdin.isatty() and err.is_terminal):
            raise WrongUsage(
                f"this would {about}", hint="type the same with --yes to do that without asking"
            )
        return typer.confirm(f"{about}?", err=True)


def say_done(dones: Sequence[Done[Any]], chosen: Chosen) -> int:
    """Print what could not be done, and that there is more; the exit code."""
    problems = [one for one in dones if one.problem is not None]
    for one in problems[:PROBLEMS_NAMED]:
        err.say(f"{one.job.kind} {short(one.job.id)}: ", str(one.problem).partition("\n")[0])
    if len(problems) > PROBLEMS_NAMED:
        err.say(f"… and {len(problems) - PROBLEMS_NAMED:,} more")
    if chosen.has_more:
        err.say("  there are more: ", "type the same again to go on")
    return exit_of(dones)


def exit_of(dones: Sequence[Done[Any]]) -> int:
    """The exit code for what was done."""
    return Exit.CONFLICT if any(one.problem is not None for one in dones) else Exit.OK


def _listed(jobs: Sequence[Job]) -> str:
    kinds = Counter(job.kind for job in jobs)
    named = [f"{number:,} of {kind}" for kind, number in kinds.most_common(KINDS_NAMED)]
    rest = len(kinds) - len(named)
    return ", ".join(named) + (f" and {counted(rest, 'other kind')}" if rest else "")
