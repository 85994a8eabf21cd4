"""`antiphon delegate NODE`: grants permissions to a node."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.interfaces.cli.commands.authority.who import grant_object, short_cid
from antiphon.interfaces.cli.screen.command import Answer, Options, command, fields
from antiphon.interfaces.cli.screen.durations import in_words, until_s
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import complete_kind, complete_right
from antiphon.interfaces.cli.screen.options import short_node
from antiphon.interfaces.cli.screen.terminal import err, out

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextlib import AbstractAsyncContextManager

    from antiphon.sdk.authority.delegation import Granted, Holdings, Terms
    from antiphon.sdk.mesh import Mesh

NodeArgument = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help="A did:key, or an alias or the end of an id as 'antiphon who' shows it.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class GrantOptions(Options):
    """What is granted: of `delegate` and `invite`."""

    can: list[str] = typer.Option(
        ...,
        metavar="PERMISSION",
        help="Such as 'claim', 'read' or 'all'; any other word lists them. May be repeated.",
        autocompletion=complete_right,
    )
    kind: list[str] | None = typer.Option(
        None,
        help="For 'render.video', 'render.*' or '*' (the default); may be repeated.",
        autocompletion=complete_kind,
    )
    until: str = typer.Option(
        "30d", metavar="TIME", help="When it ends: 2d, 12h, friday, 2026-11-20T18:00Z, never."
    )
    alias: str = typer.Option("", help="A name for the node.")
    network: bool = typer.Option(False, "--network", help="Allow its commands to use the network.")
    audit: bool = typer.Option(False, "--audit", help="Audit the model calls of its jobs.")

    def terms(self, now_s: float) -> Terms:
        """The same as terms of a grant."""
        from antiphon.sdk.authority.delegation import Terms, right_words

        for word in self.can:
            if word not in right_words():
                words = ", ".join(right_words())
                raise WrongUsage(f"--can: {word!r} is no permission", hint=f"choose from: {words}")
        return Terms(
            can=tuple(self.can),
            kinds=tuple(self.kind or ["*"]),
            until_s=until_s(self.until, now_s),
            **fields(self, "alias", "network", "audit"),
        )


@command
def delegate(
    home: Path | None, node: NodeArgument, *, grant: GrantOptions
) -> Coroutine[Any, Any, Answer]:
    """Grant permissions to a node, for some kinds, until some time.

    Acts as the owner if this directory has the owner's key. Otherwise it acts as this machine,
    which can delegate the permissions that it has itself.
    """
    return _delegate(home, node, grant.terms(time.time()))


def acting(home: Path | None) -> AbstractAsyncContextManager[Mesh]:
    """The mesh of this directory, with the owner's key if it is here, else this machine's."""
    from antiphon.sdk.hosting.strongest_key import with_authority
    from antiphon.sdk.mesh import StateDirectory

    return with_authority(StateDirectory.find(home).path)


async def _delegate(home: Path | None, node: str, terms: Terms) -> Answer:

    async with acting(home) as mesh:
        granted = await mesh.authority.grant(node, terms)
        held = await mesh.authority.who()
    facts = {
        "node": granted.node,
        **fields(granted.terms, "alias", "network", "audit", "can", "kinds", "until_s"),
        "ends_s": granted.ends_s,
        "from": granted.issuer,
        "grants": granted.cids,
        "revived": [grant_object(one) for one in granted.revived],
    }
    return Answer(facts, lambda: _tell(granted, held))


def _tell(granted: Granted, held: Holdings) -> None:
    from antiphon.sdk.authority.delegation import rights_in_words

    terms, now_s = granted.terms, held.now_s
    what = rights_in_words(terms.can, terms.kinds)
    if "all" in terms.can:
        what = f"do {what}"
    what += ", with network access," * terms.network
    what += ", with its model calls audited," * terms.audit
    name = f"{terms.alias} {short_node(granted.node)}".strip()
    out.pieces(
        ("✓ ", "succeeded"), (name, "strong"), (f" may {what} {in_words(terms.until_s, now_s)}", "")
    )
    if granted.ends_s != terms.until_s:
        err.say(
            "  it ends earlier, with this machine's own permission:"
            f" {in_words(granted.ends_s, now_s)}"
        )
    if granted.revived:
        names = ", ".join(dict.fromkeys(held.called(one.audience) for one in granted.revived))
        err.say(f"  grants that it made before are valid again: {names}")
    if granted.node in held.quarantined:
        err.say("  it is quarantined: everything from it is rejected until the owner readmits it")
    if held.authority == "open":
        err.say(
            "  this mesh is open: grants have no effect before 'antiphon rules authority=chain'"
        )
    ids = " ".join(short_cid(cid) for cid in granted.cids)
    err.pieces((f"  to revoke it: antiphon revoke {ids}", "quiet"))
