"""`antiphon git serve|key|signers|verify`: jobs as Git objects, in any repository."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.errors import Misconfigured
from antiphon.interfaces.cli.commands.proofs.verify import OwnerOption, require_whole_key
from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.command_loop import Stop
from antiphon.interfaces.cli.screen.exits import Exit
from antiphon.interfaces.cli.screen.options import load_settings, print_json
from antiphon.interfaces.cli.screen.terminal import counted, err, out

if TYPE_CHECKING:
    from antiphon.interfaces.git.clone_check import Checked
    from antiphon.interfaces.git.mirror import MirrorStatus
    from antiphon.sdk.mesh import Mesh

git = typer.Typer(help="Show jobs as Git objects, and take jobs by git push.", no_args_is_help=True)

RepositoryArgument = Annotated[
    Path, typer.Argument(metavar="REPO", help="A Git repository on this machine.")
]


@git.command()
@command
async def serve(
    mesh: Mesh,
    as_json: bool,
    stop: Stop,
    repo: RepositoryArgument,
    *,
    again: bool = typer.Option(
        False, "--again", help="Compare every job with the log, and delete what it does not have."
    ),
    bundles: bool = typer.Option(
        True, "--bundles/--no-bundles", help="Also write what 'antiphon verify' checks."
    ),
    read_only: bool = typer.Option(
        False, "--read-only", help="Take no jobs from pushes, and write no hooks."
    ),
    follow: list[str] = typer.Option(
        [],
        metavar="BRANCH",
        help="Make a job git.push.NAME of each commit that comes to this branch; 'release/*' for"
        " several. Repeat it for more.",
    ),
    name: str = typer.Option(
        "", metavar="NAME", help="The NAME in git.push.NAME; from the folder's name if left out."
    ),
) -> Answer:
    """Show the jobs of the mesh in a repository, and take jobs that are pushed to it.

    REPO is made if it does not exist. Everyone who can fetch from it can read the jobs with git
    alone, below refs/gatos/jobs. A commit with a job.yaml that is pushed to
    refs/gatos/jobs/new/KIND is a job, if a key signed it that may submit that kind. How the jobs
    ended that plans submit for a pushed commit is noted on the commit: refs/notes/antiphon.
    """
    from antiphon.interfaces.git.bridge import Following, serving

    load_settings()

    def ready(status: MirrorStatus) -> None:
        if as_json:
            about = {"event": "ready", "repo": str(repo.resolve()), "pid": os.getpid()}
            print_json({**about, "mesh": mesh.id, **fields(status, "upto", "jobs", "bundles")})
            return
        pushed = f"  a commit that comes to {', '.join(follow)} is a job {bridge.kind}"
        out.say(
            f"{repo} shows the jobs of mesh {mesh.id} up to record {status.upto:,} and follows the"
            " log; Ctrl-C stops it"
        )
        if follow:
            out.say(pushed)
        if bundles and not status.is_whole:
            err.say("  this machine may not read every kind, so there are no bundles here")

    following = Following(branches=tuple(follow), name=name)
    async with serving(
        repo, mesh, has_bundles=bundles, takes_jobs=not read_only, following=following
    ) as bridge:
        if again:
            deleted = await bridge.mirror.rewrite()
            err.say(f"compared every job with the log; {counted(deleted, 'ref')} deleted")
        running = asyncio.ensure_future(bridge.mirror.run(ready))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({running, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for one in (stopped, running):
            one.cancel()
        if running.done():
            running.result()
        await asyncio.gather(running, stopped, return_exceptions=True)
        status = bridge.mirror.status
    return Answer(
        {"event": "stopped", **fields(status, "upto", "jobs", "bundles")},
        lambda: out.say(f"stopped at record {status.upto:,}"),
    )


@git.command()
@command
def key(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="An SSH key's public half: id_ed25519.pub.")
    ],
) -> Answer:
    """Print an SSH key as the mesh names it, for 'antiphon delegate'."""
    from antiphon.sdk.git.ssh_signature import did_of_ssh_key

    try:
        line = file.read_text(errors="replace")
    except OSError as problem:
        raise Misconfigured(f"{file} cannot be read: {problem.strerror}") from problem
    did = did_of_ssh_key(line)
    return Answer({"key": did}, lambda: out.say(did))


@git.command()
@command
async def signers(mesh: Mesh) -> Answer:
    """Print the keys that may submit jobs, as git's allowed signers file.

    For: git -c gpg.ssh.allowedSignersFile=FILE verify-commit refs/gatos/jobs/JOB/pushed
    """
    from antiphon.sdk.git.pushed_jobs import PushedJobs

    lines = await PushedJobs(mesh).allowed_signers()
    return Answer({"signers": lines}, lambda: [print(line) for line in lines])


@git.command()
@command
async def verify(
    repo: RepositoryArgument,
    job: Annotated[str, typer.Argument(metavar="[JOB]", help="Only jobs whose id begins so.")] = "",
    *,
    owner: OwnerOption = None,
    sources: bool = typer.Option(
        False, "--sources", help="Compare pushed commits with the files that were given to jobs."
    ),
) -> Answer:
    """Check the jobs in a clone, and the notes on its commits, offline.

    Checks the bundle of each job, and that its refs and the notes in refs/notes/antiphon show
    exactly what the bundles prove. Needs no server and no state directory.
    """
    from msgspec import to_builtins

    from antiphon.interfaces.git.clone_check import check_clone
    from antiphon.interfaces.git.repository import open_repository

    require_whole_key(owner)
    repository = await open_repository(repo)
    found = await check_clone(repository, owner=owner, job=job, with_sources=sources)
    facts = {"ok": not found.wrong, **to_builtins(found)}
    code = Exit.REJECTED if found.wrong else Exit.OK
    return Answer(facts, lambda: _tell(found, is_owner_given=owner is not None), code)


def _tell(found: Checked, *, is_owner_given: bool) -> None:
    out.say(f"{counted(found.verified, 'job')} verified, of {found.jobs:,}")
    if found.unsealed:
        out.say(f"{counted(found.unsealed, 'job')} without a bundle: not ended, or not sealed yet")
    if found.notes:
        out.say(f"{counted(found.notes, 'note')} on commits verified")
    if found.sources:
        out.say(f"the files that {counted(found.sources, 'job')} stored are those of the commits")
    for one in found.findings:
        out.hanging([("✗ ", "failed")], [(f"{one.ref}: {one.problem}", "")])
    if found.wrong > len(found.findings):
        out.say(f"  and {found.wrong - len(found.findings):,} more")
    if found.verified and not is_owner_given:
        out.say(f"  the mesh's owner is {found.owner}, whom you did not name: --owner DID")
