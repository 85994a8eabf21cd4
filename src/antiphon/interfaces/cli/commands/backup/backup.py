"""`antiphon backup DIR|BUCKET`: copies what is new in a running mesh; `--verify` checks a copy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.passphrase import PassphraseFileOption, ask_passphrase
from antiphon.interfaces.cli.screen.progress import size_words
from antiphon.interfaces.cli.screen.terminal import ago, counted, err, moment, out

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from antiphon.sdk.hosting.backups import BackupReport, Written

PlaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="DIR|BUCKET",
        help="Where the backup is: a directory, or s3://bucket/prefix.",
        show_default=False,
    ),
]
KeysOption = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        help="Also write the keys to this file, encrypted. Keep it apart from the backup.",
        show_default=False,
    ),
]


@command
def backup(
    home: Path | None,
    place: PlaceArgument,
    *,
    keys: KeysOption = None,
    passphrase_file: PassphraseFileOption = None,
    verify: bool = typer.Option(False, "--verify", help="Check a backup; needs no mesh."),
) -> Coroutine[Any, Any, Answer]:
    """Back up the mesh that is hosted here, while it runs.

    Copies the log, stored messages and values, the gate's members, and the archive if there is one.
    The next time, only what is new is written. A backup that was interrupted leaves the former one
    as it was. Keys are never in it: use --keys once, and whenever a key changes.
    """
    if verify:
        if keys is not None:
            raise WrongUsage("--verify writes nothing", hint="leave --keys out")
        return _verify(place)
    if keys is not None and keys.resolve().is_relative_to(Path(place).resolve()):
        raise WrongUsage(
            "the keys must not be in the backup: whoever has both can be the mesh's owner",
            hint="name a file elsewhere, best on another medium",
        )
    passphrase = ask_passphrase(passphrase_file, twice=True) if keys is not None else ""
    return _back_up(home, place, keys, passphrase)


async def _back_up(home: Path | None, place: str, keys: Path | None, secret: str) -> Answer:
    from antiphon.sdk.hosting.backups import back_up, store_keys

    stored = store_keys(keys, secret, home=home) if keys is not None else 0  # may be refused
    written = await back_up(place, home=home)
    facts = {
        **fields(written.manifest, "mesh", "name", "upto", "last_ms", "made_ms"),
        "records": written.manifest.records,
        "new_records": written.records,
        "blobs": written.total_blobs,
        "new_blobs": written.blobs,
        "bytes_written": written.bytes,
        "keys": stored,
    }
    return Answer(facts, lambda: _say_written(written, place, keys, stored))


def _say_written(written: Written, place: str, keys: Path | None, stored: int) -> None:
    manifest = written.manifest
    total = counted(manifest.records, "record")
    news = "" if written.is_first else f", {written.records:,} of them new"
    out.say(f"{place}: {total} of the mesh {manifest.name!r}{news}")
    values = f"  {counted(written.total_blobs, 'stored value')}, {written.blobs:,} of them new;"
    out.say(f"{values} {size_words(written.bytes)} written")
    if keys is not None:
        out.say(f"{keys}: {counted(stored, 'key')}, encrypted. Keep it apart from the backup.")
    elif written.is_first:
        err.say(f"  without its keys nobody can restore it: antiphon backup {place} --keys FILE")


async def _verify(place: str) -> Answer:
    from antiphon.sdk.hosting.backups import check_backup

    report = await check_backup(place, told=telling())
    err.erase()
    return Answer({"ok": True, **report_facts(report)}, lambda: say_backup(report))


def telling() -> Callable[[int, int], None]:
    """Shows on a terminal how far a check has come."""

    def tell(done: int, total: int) -> None:
        if err.can_rewrite:
            err.fading((f"checking  {done:,} of {total:,} records", "quiet"))

    return tell


def report_facts(report: BackupReport) -> dict[str, Any]:
    """What a check found, for programs."""
    return fields(
        report,
        "mesh",
        "name",
        "owner",
        "made_ms",
        "records",
        "upto",
        "last_ms",
        "sealed",
        "purged",
        "messages",
        "blobs",
        "blob_bytes",
        "archived",
    )


def say_backup(report: BackupReport) -> None:
    """The same for a person."""
    out.say(f"this backup is whole: {counted(report.records, 'record')} of {report.name!r}")
    newest = f"{moment(report.last_ms)}, {ago(report.last_ms)}"
    rows = [
        ("made         ", f"{moment(report.made_ms)}, by the owner {report.owner}"),
        ("newest       ", f"record {report.upto:,}, committed {newest}"),
        ("sealed up to ", f"record {report.sealed:,}"),
        ("messages     ", f"{report.messages:,}"),
        ("values       ", f"{report.blobs:,}, {size_words(report.blob_bytes)}"),
    ]
    if report.purged:
        rows.append(("purged       ", f"{report.purged:,} records are in the archive only"))
    if report.archived:
        rows.append(("archive      ", counted(report.archived, "record")))
    for name, words in rows:
        out.hanging([(f"  {name} ", "")], [(words, "")])
