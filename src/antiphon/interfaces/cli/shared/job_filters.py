"""Which jobs a command is about: the options of `jobs`, and of what acts on many jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import typer

from antiphon.interfaces.cli.screen.command import Options
from antiphon.interfaces.cli.screen.durations import some_seconds
from antiphon.interfaces.cli.screen.lookup import complete_job, complete_kind
from antiphon.sdk.defaults import StateName

if TYPE_CHECKING:
    from antiphon.sdk.queries.job_query import JobFilters


@dataclass(frozen=True)
class JobFilterOptions(Options):
    """Filters of `antiphon jobs`: everything that is given has to be true of a job."""

    state: list[StateName] | None = typer.Option(None, help="Only this state; may be repeated.")
    kind: str = typer.Option(
        "", help="Only this kind and kinds below it.", autocompletion=complete_kind
    )
    since: float | None = typer.Option(
        None,
        parser=some_seconds,
        metavar="TIME",
        help="Only jobs that were submitted within this time: 2h, 7d.",
    )
    until: float | None = typer.Option(
        None,
        "--older-than",
        "--until",
        parser=some_seconds,
        metavar="TIME",
        help="Only jobs that were submitted longer ago than this: 2h, 7d.",
    )
    by: str = typer.Option("", metavar="NODE", help="Only jobs that this node submitted.")
    worker: str = typer.Option(
        "", metavar="NODE", help="Only jobs that this node holds, or ran last."
    )
    label: str = typer.Option("", help="Only jobs with this label, which a limit counts.")
    plan: str = typer.Option("", metavar="NAME", help="Only jobs that follow from this plan.")
    text: str = typer.Option(
        "", metavar="WORDS", help="Only jobs whose newest error has these words."
    )
    graph: str = typer.Option(
        "",
        metavar="JOB",
        help="Only jobs that this one waited for, or that waited for it, and so on.",
        autocompletion=complete_job,
    )

    def filters(self) -> JobFilters:
        """What was given, as `Mesh.jobs` takes it."""
        given: dict[str, Any] = {
            name: value for name, value in vars(self).items() if value not in (None, "", [])
        }
        if self.state:
            given["state"] = [one.value for one in self.state]
        return cast("JobFilters", given)
