"""`antiphon verify FILE`: checks a bundle and prints what it proves and what it does not."""

from __future__ import annotations

import asyncio
import secrets
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.errors import Misconfigured
from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.exits import Exit, WrongUsage
from antiphon.interfaces.cli.screen.terminal import out
from antiphon.interfaces.cli.shared.rerun import run_again

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from antiphon.sdk.proofs.bundles import Report


OwnerOption = Annotated[
    str | None,
    typer.Option(
        "--owner", metavar="DID", help="The whole id of the mesh's owner, as you know it."
    ),
]
ArtifactsOption = Annotated[
    Path | None,
    typer.Option(
        "--artifacts",
        metavar="DIR",
        help="Compare files in DIR with the job's outputs; with --rerun, read inputs from DIR.",
    ),
]


@command
def verify(
    home: Path | None,
    bundle: Path = typer.Argument(
        ..., metavar="FILE", help="A bundle from 'antiphon export', or a job in the archive."
    ),
    *,
    owner: OwnerOption = None,
    artifacts: ArtifactsOption = None,
    rerun: bool = typer.Option(
        False, "--rerun", help="Run the command again in a sandbox on this machine, and compare."
    ),
    network: bool = typer.Option(
        False, "--network", help="With --rerun: allow network access, if the command asks."
    ),
    open_page: bool = typer.Option(
        False, "--open", help="Show it step by step on a page in your browser."
    ),
) -> Answer | Coroutine[Any, Any, Answer | int]:
    """Check a bundle offline.

    Needs no server, no state directory and no network. Everything depends on the owner's key:
    give the one that you trust. Only --rerun uses the mesh of this directory, for inputs that are
    not in DIR.
    """
    from antiphon.sdk.proofs.bundles import open_bundle

    require_whole_key(owner)
    if network and not rerun:
        raise WrongUsage("--network needs --rerun", hint="--rerun --network")

    try:
        data = bundle.read_bytes()
    except OSError as problem:
        unreadable = Misconfigured(
            f"{bundle} cannot be read: {problem.strerror}", hint="antiphon export JOB writes one"
        )
        if rerun or not isinstance(problem, FileNotFoundError):
            raise unreadable from problem
        return _verify_archived(home, str(bundle), owner, artifacts, unreadable)
    if open_page:
        return _shown_on_a_page(bundle.name, data, owner)
    report = open_bundle(data, owner=owner)
    if rerun:
        return run_again(report, artifacts, home, network=network)
    return _told(report, artifacts, is_owner_given=owner is not None)


async def _verify_archived(
    home: Path | None,
    job: str,
    owner: str | None,
    artifacts: Path | None,
    otherwise: Misconfigured,
) -> Answer:
    """The same for a job in the archive, whose bundle is composed here."""
    from antiphon.sdk.archive.archives import has_archive, open_archive
    from antiphon.sdk.proofs.bundles import open_bundle

    if not await has_archive(home):
        raise otherwise
    async with open_archive(home=home) as archive:
        report = open_bundle(await archive.export(await archive.find(job)), owner=owner)
    return _told(report, artifacts, is_owner_given=owner is not None)


def _told(report: Report, artifacts: Path | None, *, is_owner_given: bool) -> Answer:
    from antiphon.sdk.proofs.sentences import not_proved, outcome, proved

    shown, open_ends = proved(report, is_owner_given=is_owner_given), not_proved(report)
    if artifacts is not None:
        shown.append(_compared(report, artifacts))

    def words() -> None:
        out.say(f"this bundle is valid: {outcome(report)}")
        for title, sentences in (("shown", shown), ("not shown", open_ends)):
            out.say("")
            out.say(title)
            for sentence in sentences:
                out.hanging([("  - ", "")], [(sentence, "")])

    return Answer(_facts(report, shown, open_ends), words)


async def _shown_on_a_page(name: str, data: bytes, owner: str | None) -> int:
    """Serve the page until the person stops it."""
    from antiphon.interfaces.cli.screen import command_loop
    from antiphon.interfaces.http.node_server import installed
    from antiphon.settings import HttpAddress

    with installed():
        from antiphon.interfaces.http.bounded_server import serving
        from antiphon.interfaces.http.pages.verify_page import File, make_application

    async def serve(stop: command_loop.Stop) -> int:
        secret = secrets.token_urlsafe(16)
        application = make_application(secret, File(name, data), owner=owner)
        async with serving(application, HttpAddress("127.0.0.1", 0)) as port:
            where = f"http://127.0.0.1:{port}/{secret}/"
            out.say(f"{name} is checked at {where}; Ctrl-C stops it")
            await asyncio.to_thread(webbrowser.open, where)
            await stop.wait()
        return Exit.OK

    return await command_loop.serving(serve)


def require_whole_key(owner: str | None) -> None:
    """`WrongUsage` unless an owner that was given is a whole id."""
    if owner is not None and not owner.startswith("did:key:"):
        raise WrongUsage(
            f"{owner!r} is not a whole key: names and shortened ids can be imitated",
            hint="--owner did:key:z6Mk…, the owner's whole id; 'antiphon export' prints it",
        )


def _compared(report: Report, directory: Path) -> str:
    from antiphon.sdk.artifacts.namespace import compare

    same = compare(report, directory)
    if not same:
        return f"all outputs are in the record itself, so no file in {directory} was compared"
    names = ", ".join(output.name for output in same)
    return f"the files in {directory} are exactly what the job wrote, by size and digests: {names}"


def _facts(report: Report, shown: list[str], open_ends: list[str]) -> dict[str, object]:
    completion = report.completion
    return {
        "ok": True,
        **fields(report, "mesh", "owner", "coordinator"),
        **fields(report.key, "family", "kind"),
        "job": report.key.name,
        "outcome": report.job.outcome if report.is_job else "",
        "worker": completion.author if completion is not None else None,
        "seal": fields(report.seal, "upto", "root"),
        "shown": shown,
        "not_shown": open_ends,
    }
