"""`antiphon dismiss`: takes dead jobs, or a dead node, off the list of what needs somebody."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import complete_job, complete_kind, find_job
from antiphon.interfaces.cli.screen.node_names import node_names
from antiphon.interfaces.cli.screen.options import short, short_node
from antiphon.interfaces.cli.screen.terminal import ago, counted, err, out

if TYPE_CHECKING:
    from antiphon.sdk.dismissals.namespace import Dismissal
    from antiphon.sdk.mesh import Job, Mesh

SomeJobs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[JOB]…",
        help="Jobs that ended without a result: ids, or enough of their first digits.",
        show_default=False,
        autocompletion=complete_job,
    ),
]


@command
async def dismiss(
    mesh: Mesh,
    jobs: SomeJobs = None,
    *,
    kind: str = typer.Option(
        "",
        help="All dead jobs of this kind and kinds below it, until now.",
        autocompletion=complete_kind,
        show_default=False,
    ),
    error: str = typer.Option(
        "",
        metavar="TEXT",
        help="All dead jobs whose outcome and error have these words, until now.",
        show_default=False,
    ),
    node: str = typer.Option(
        "", metavar="NODE", help="A node that died: its alias, or its id.", show_default=False
    ),
    undo: bool = typer.Option(False, "--undo", help="List them again."),
) -> Answer:
    """Take dead jobs off the list of what needs a person.

    They stay on the log, and 'antiphon jobs --failed' and 'antiphon retry' still find them. A kind
    or an error is dismissed as it is now: what fails later is listed again. All nodes of the
    owner see it; members cannot dismiss. Without arguments, it lists what is dismissed.

    \b
      antiphon dismiss 3f9a
      antiphon dismiss --kind report --error "failed: ConnectionError"
      antiphon dismiss --node gpu-box/worker-1
      antiphon dismiss --undo --kind report
    """  # noqa: D301 - \b keeps the lines apart
    chosen = [bool(jobs), bool(kind or error), bool(node)]
    if sum(chosen) > 1:
        raise WrongUsage(
            "jobs, a node, and --kind or --error cannot be combined", hint="type one command each"
        )
    if not any(chosen):
        if undo:
            raise WrongUsage("say what to list again", hint="antiphon dismiss lists what there is")
        return await _listed(mesh)
    if node:
        return await _node(mesh, node, undo=undo)
    if jobs:
        return await _jobs(mesh, [await find_job(mesh, one) for one in jobs], undo=undo)
    return await _group(mesh, kind, error, undo=undo)


async def _group(mesh: Mesh, kind: str, error: str, *, undo: bool) -> Answer:
    typed = "".join(
        f" --{name} {shlex.quote(text)}"
        for name, text in (("kind", kind), ("error", error))
        if text
    )
    if undo:
        await mesh.dismissals.undo_group(kind=kind, error=error)
        return Answer({"undone": True}, lambda: out.say("they are listed again"))
    count = await mesh.dismissals.group(kind=kind, error=error)

    def words() -> None:
        if not count:
            err.say("no dead job that is listed matches: nothing was dismissed")
            return
        out.say(f"{counted(count, 'job')} dismissed; what fails from now on is listed")
        err.say("  to undo: ", f"antiphon dismiss --undo{typed}")

    return Answer({"dismissed": count}, words)


async def _jobs(mesh: Mesh, jobs: list[Job], *, undo: bool) -> Answer:
    act = mesh.dismissals.undo_jobs if undo else mesh.dismissals.jobs
    await act([(job.kind, job.id) for job in jobs])
    ids = " ".join(short(job.id) for job in jobs)

    def words() -> None:
        if undo:
            out.say(f"{counted(len(jobs), 'job')} listed again")
        else:
            out.say(f"{counted(len(jobs), 'job')} dismissed")
            err.say("  to undo: ", f"antiphon dismiss --undo {ids}")

    return Answer({"undone": True} if undo else {"dismissed": len(jobs)}, words)


async def _node(mesh: Mesh, node: str, *, undo: bool) -> Answer:
    act = mesh.dismissals.undo_node if undo else mesh.dismissals.node
    alias = await act(node)

    def words() -> None:
        out.say(f"{alias} is {'listed again' if undo else 'dismissed'}")
        if not undo:
            err.say("  to undo: ", f"antiphon dismiss --undo --node {shlex.quote(node)}")

    return Answer({"undone": True} if undo else {"dismissed": 1}, words)


async def _listed(mesh: Mesh) -> Answer:
    found = await mesh.dismissals.listed()
    name = await node_names(mesh, {one.by for one in found})

    def words() -> None:
        if not found:
            out.say("nothing is dismissed")
            return
        heads = ("DISMISSED", "WHEN", "BY")
        rows = [
            [(_what(one), "strong"), (ago(one.at_ms), "quiet"), (name(one.by), "quiet")]
            for one in found
        ]
        out.table(heads, rows, flexible=0)
        err.say("  to undo: ", f"antiphon dismiss --undo {_what(found[0])}")

    return Answer({"dismissals": [_object(one) for one in found]}, words)


def _what(one: Dismissal) -> str:
    if one.job:
        return short(one.job)
    if one.node:
        return f"--node {short_node(one.node)}"
    given = (("kind", one.kind), ("error", one.error))
    return " ".join(f"--{name} {shlex.quote(text)}" for name, text in given if text)


def _object(one: Dismissal) -> dict[str, object]:
    from msgspec import structs

    return structs.asdict(one)
