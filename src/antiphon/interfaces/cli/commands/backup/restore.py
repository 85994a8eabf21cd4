"""`antiphon restore DIR`: a mesh out of its backup; `--accept` on machines that had seen more."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from antiphon.errors import Rejected
from antiphon.interfaces.cli.commands.authority.who import grant_object, terms_in_words
from antiphon.interfaces.cli.commands.backup.backup import report_facts, say_backup, telling
from antiphon.interfaces.cli.commands.mesh.up import parse_listen, place_of
from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.options import short, short_node
from antiphon.interfaces.cli.screen.passphrase import PassphraseFileOption, ask_passphrase
from antiphon.interfaces.cli.screen.terminal import clock, counted, err, moment, out

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from antiphon.sdk.authority.delegation import Grant, Holdings
    from antiphon.sdk.hosting.backups import Accepted, LostRecord, Restored

SHOWN: Final = 20
"""Lost records, and nodes with permissions, that are listed for a person; --json lists them all."""
REVOKE_AGAIN: Final = (
    "These have permissions again. Revoke what you had revoked as soon as it runs:"
)

PlaceArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="[DIR|BUCKET]",
        help="Where the backup is: a directory, or s3://bucket/prefix.",
        show_default=False,
    ),
]
KeysOption = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        help="The file of keys that 'antiphon backup --keys' wrote.",
        show_default=False,
    ),
]


@command
def restore(
    home: Path | None,
    backup: PlaceArgument = None,
    *,
    keys: KeysOption = None,
    passphrase_file: PassphraseFileOption = None,
    listen: str = typer.Option(
        "", metavar="HOST:PORT", help="Where its server listens now. Default: as before."
    ),
    reach: list[str] | None = typer.Option(
        None,
        metavar="NAME",
        help="A name or address at which other machines reach it now; may be repeated.",
    ),
    accept: bool = typer.Option(
        False,
        "--accept",
        help="On a machine whose node stopped: go on with the restored log.",
    ),
) -> Coroutine[Any, Any, Answer]:
    """Restore a mesh from a backup, into an empty state directory.

    Everything is checked before the mesh can be served: sequence numbers, times and verdicts are
    those that they were. What was acknowledged after the backup is lost. Machines that have seen
    it stop and say so; there, 'antiphon restore --accept' lists what is lost and goes on.

    Revocations after the backup are lost, too: it lists who has permissions, and how to revoke.
    """
    if accept:
        if backup is not None or keys is not None:
            raise WrongUsage("--accept takes no backup", hint="antiphon restore --accept")
        return _accept(home)
    if backup is None or keys is None:
        raise WrongUsage(
            "a restore needs a backup and its keys", hint="antiphon restore DIR --keys FILE"
        )
    if reach and not listen:
        raise WrongUsage("--reach needs --listen", hint="for example: --listen 0.0.0.0:4222")
    secret = keys, ask_passphrase(passphrase_file, twice=False)
    return _restore(backup, secret, place_of(home), listen, reach or [])


async def _restore(
    backup: str, keys: tuple[Path, str], place: Path, listen: str, reach: list[str]
) -> Answer:
    from antiphon.sdk.hosting.backups import restore as put_back

    where = parse_listen(listen, reach) if listen else None
    restored = await put_back(backup, keys, place, listen=where, told=telling())
    err.erase()
    facts = {
        **report_facts(restored.report),
        "engine": restored.mesh.engine,
        "home": str(place),
        "expired": restored.expired,
        "authority": restored.report.held.authority,
        "undone_since_ms": restored.report.last_ms,
        "live": [_member_facts(one, restored.report.held) for one in _live(restored, place)],
    }
    return Answer(facts, lambda: _say_restored(restored, place))


def _say_restored(restored: Restored, place: Path) -> None:
    report = restored.report
    say_backup(report)
    out.say("")
    out.pieces(("✓ ", "succeeded"), (f"restored into {place}", ""))
    lost = f"What was acknowledged after {moment(report.last_ms)} is lost."
    out.hanging([("  ", "")], [(f"{lost} Machines that have seen it stop and say so.", "")])
    if restored.expired:
        out.say(f"  {counted(restored.expired, 'message')} had expired")
    out.say("Be sure that the old server is off, then start it:")
    out.say(f"  antiphon {'up' if restored.is_secured else 'dev'} --home {place}")
    _say_live(restored, place)


# --- who has permissions ----------------------------------------------------------------------


class _Member(NamedTuple):
    """A node with permissions, and the command that revokes them."""

    did: str
    grants: list[Grant]
    revoke: str


def _live(restored: Restored, place: Path) -> list[_Member]:
    """Everybody with permissions but the host, and processes that machines pass theirs on to."""
    held = restored.report.held
    found: dict[str, list[Grant]] = {}
    for one in held.tree.grants():
        if one.state.value == "live" and not one.is_powerline and one.audience not in restored.own:
            found.setdefault(one.audience, []).append(one)
    revoke = ["antiphon", "revoke"]
    return [
        _Member(did, grants, shlex.join([*revoke, _word_for(held, did), "--home", str(place)]))
        for did, grants in found.items()
    ]


def _word_for(held: Holdings, did: str) -> str:
    """What to type for a node: its alias, if that is nobody else's."""
    from antiphon.sdk.authority.holdings import find_node

    name = held.tree.names.get(did, "")
    try:
        is_clear = bool(name) and find_node(held, name) == did
    except Rejected:
        is_clear = False
    return name if is_clear else short_node(did)


def _member_facts(one: _Member, held: Holdings) -> dict[str, Any]:
    from antiphon.sdk.authority.delegation import in_words

    ends = [grant.ends_s for grant in one.grants]
    return {
        "node": one.did,
        "alias": held.tree.names.get(one.did, ""),
        "may": in_words(one.grants),
        "until_s": None if None in ends else max(end for end in ends if end is not None),
        "grants": [grant_object(grant) for grant in one.grants],
        "revoke": one.revoke,
    }


def _say_live(restored: Restored, place: Path) -> None:
    report = restored.report
    since = f"Revocations after {moment(report.last_ms)} are undone."
    if report.held.authority == "open":
        out.say(f"{since} This mesh is open: whoever can connect may do everything.")
        return
    members = _live(restored, place)
    if not members:
        out.say(f"{since} Nobody but this host has permissions.")
        return
    out.hanging([("", "")], [(f"{since} {REVOKE_AGAIN}", "")])
    for one in members[:SHOWN]:
        terms = "; ".join(terms_in_words(one.grants, report.held.now_s))
        out.hanging([("  ", "")], [(report.held.called(one.did), "strong"), (f": {terms}", "")])
        out.say(f"    {one.revoke}")
    if len(members) > SHOWN:
        out.say(f"  and {len(members) - SHOWN:,} more: antiphon who --home {place}")


# --- on a machine that had seen more ----------------------------------------------------------


async def _accept(home: Path | None) -> Answer:
    from antiphon.sdk.hosting.backups import accept_restored

    accepted = await accept_restored(home)
    lost = [_facts(one) for one in accepted.lost]
    kept = str(accepted.kept) if accepted.kept is not None else None
    facts = {"agreed": accepted.agreed, "lost": lost, "kept": kept}
    return Answer(facts, lambda: _say_accepted(accepted))


def _facts(one: LostRecord) -> dict[str, Any]:
    return fields(one, "seq", "commit_ms", "op", "author", "kind", "name", "verdict")


def _say_accepted(accepted: Accepted) -> None:
    if not accepted.lost:
        out.say("the log has everything that this machine has seen: nothing is lost")
        return
    count = counted(len(accepted.lost), "record")
    out.say(f"lost: {count} that this machine saw after record {accepted.agreed:,}")
    for one in accepted.lost[:SHOWN]:
        what = f"{one.op} {one.kind} {short(one.name)}".rstrip()
        by = short_node(one.author) if one.author else "nobody"
        out.say(f"  {one.seq:>8,}  {clock(one.commit_ms)}  {what}  by {by}, {one.verdict}")
    if len(accepted.lost) > SHOWN:
        out.say(f"  and {len(accepted.lost) - SHOWN:,} more: --json lists them all")
    out.hanging([("", "")], [(f"This machine's copy of them is kept in {accepted.kept}", "")])
    out.say("Submit again what you still need, then start the node: antiphon node")
