"""`antiphon delegate NODE`: grants permissions to a node."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from antiphon.interfaces.cli.commands.authority.who import grant_object, short_cid
from antiphon.interfaces.cli.screen.command import Answer, Options, command, fields
from antiphon.interfaces.cli.screen.durations import in_words, until_s
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.lookup import complete_kind, complete_right
from antiphon.interfaces.cli.screen.options import short_node
from antiphon.interfaces.cli.screen.terminal import err, out

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence
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


MEANS: Final = {
    "claim": "run jobs",
    "answer": "answer questions",
    "schedule": "submit jobs",
    "read": "look at jobs, locks and documents",
    "cancel": "cancel anybody's jobs",
    "lock": "take locks",
    "break-lock": "end what somebody else holds",
    "memory": "read and write shared memory",
    "read-memory": "read shared memory",
    "forget": "have the bytes of jobs removed",
    "message": "send messages",
    "tempo": "lead the tempo",
    "all": "everything but what the owner alone may do",
}
"""What each permission lets a machine do."""


@dataclass(frozen=True)
class GrantOptions(Options):
    """What is granted: of `delegate` and `invite`."""

    can: list[str] | None = typer.Option(
        None,
        metavar="PERMISSION",
        help="Such as 'claim', 'read' or 'all'; without one, they are listed. May be repeated.",
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

    def terms(
        self, now_s: float, typed: str, *, can: Sequence[str] = (), kinds: Sequence[str] = ()
    ) -> Terms:
        """The same as terms of a grant, with further permissions and kinds.

        `typed` is the command as it is typed, for an example.
        """
        from antiphon.sdk.authority.delegation import Terms, right_words

        words = right_words()
        permissions = tuple(dict.fromkeys([*can, *(self.can or [])]))
        for word in permissions:
            if word not in words:
                raise _wrong(f"--can: {word!r} is no permission", typed, words)
        if not permissions:
            raise _wrong("what may it do? --can is missing", typed, words)
        return Terms(
            can=permissions,
            kinds=tuple(dict.fromkeys([*kinds, *(self.kind or [])])) or ("*",),
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
    return _delegate(home, node, grant.terms(time.time(), f"antiphon delegate {node}"))


def _wrong(what: str, typed: str, words: Sequence[str]) -> WrongUsage:
    """An error with an example to type, and with every permission in words."""
    further = []
    if typed == "antiphon invite":
        further = ["or, for a machine of yours that runs jobs:", f"{typed} --worker 'render.*'"]
    wide = max(map(len, words)) + 2
    return WrongUsage(
        what,
        hint=f"{typed} --can claim --kind 'render.*'",
        further=[
            *further,
            "--can takes:",
            *(f"  {word:{wide}}{MEANS.get(word, '')}".rstrip() for word in words),
        ],
    )


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
