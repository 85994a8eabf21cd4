"""`antiphon archive status|verify|find`: reads an archive, without a server."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import counted, out
from antiphon.interfaces.cli.shared.story_rows import report_object, say_report

archive = typer.Typer(
    help="Read the archive: what was sealed, with or without its mesh.", no_args_is_help=True
)

FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="DIR|BUCKET",
        help="Where the archive is: a directory, or s3://bucket/prefix. Default:"
        " ANTIPHON_ARCHIVE, or archive in the state directory.",
        show_default=False,
    ),
]
NameArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", help="A job's id, or its first digits.", show_default=False),
]


@archive.command()
@command
async def status(home: Path | None, *, place: FromOption = None) -> Answer:
    """Show how far an archive goes; nothing is checked."""
    from antiphon.sdk.archive.archives import open_archive

    async with open_archive(place, home=home) as opened:
        found = await opened.status()

    def words() -> None:
        out.say(f"{found.place}: {counted(found.records, 'record')} of mesh {found.mesh}")
        out.hanging([("  sealed up to  ", "")], [(f"record {found.upto:,}", "")])
        out.hanging([("  sealed by     ", "")], [(found.sealed_by, "")])
        out.hanging([("  root          ", "")], [(found.root, "")])
        out.hanging([("  its key       ", "")], [(found.vkey, "")])

    names = ("place", "mesh", "records", "upto", "sealed_by", "root", "vkey")
    return Answer(fields(found, *names), words)


@archive.command()
@command
async def verify(
    home: Path | None,
    *,
    place: FromOption = None,
    owner: str | None = typer.Option(
        None, metavar="DID", help="The whole id of the mesh's owner, as you know it."
    ),
) -> Answer:
    """Check every file of an archive.

    Entries, tiles and root must agree, records must be what their entries say, and the coordinator
    that the control records name must have sealed the root and signed the checkpoint.
    """
    from antiphon.sdk.archive.archives import open_archive

    async with open_archive(place, home=home) as opened:
        report = await opened.check()
    if owner is not None and report.owner != owner:
        raise WrongUsage(
            f"this is the archive of a mesh that {report.owner} created, not the owner you named",
            hint="another archive, or another --owner",
        )

    def words() -> None:
        erased = f", {report.erased:,} of them erased" if report.erased else ""
        out.say(f"this archive is whole: {counted(report.records, 'record')}{erased}")
        trust = "the owner that you named" if owner else "whom you did not name (--owner DID)"
        out.hanging([("  - ", "")], [(f"its mesh was created by {report.owner}, {trust}", "")])
        sealed = f"its root is sealed and its checkpoint signed by {report.coordinator}"
        out.hanging([("  - ", "")], [(f"{sealed}, the coordinator", "")])

    names = ("mesh", "owner", "coordinator", "records", "erased", "upto", "root")
    return Answer({"ok": True, **fields(report, *names)}, words)


@archive.command()
@command
async def find(
    home: Path | None,
    job: NameArgument,
    *,
    place: FromOption = None,
    output: Path | None = typer.Option(
        None, "--output", "-o", metavar="FILE", help="Also write the job's bundle to this file."
    ),
) -> Answer:
    """Find a job in an archive, check it, and show its history."""
    from antiphon.sdk.archive.archives import open_archive

    async with open_archive(place, home=home) as opened:
        key = await opened.find(job)
        data, report = await opened.export(key), await opened.report(key)
    if output is not None:
        await asyncio.to_thread(output.write_bytes, data)

    def words() -> None:
        say_report(report)
        if output is not None:
            out.say("")
            out.say(f"its bundle is in {output}: antiphon verify {output} --owner {report.owner}")
        else:
            out.say("")
            out.say(f"antiphon archive find {short(key.name)} -o FILE writes its bundle")

    return Answer({**report_object(report), "bytes": len(data)}, words)
