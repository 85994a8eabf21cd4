"""`antiphon who`: who has which permissions, delegated by whom, until when."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import typer

from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.durations import beginning_in_words, in_words
from antiphon.interfaces.cli.screen.options import short_node
from antiphon.interfaces.cli.screen.terminal import GUTTER, Piece, counted, err, joined, out

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.tree import Tree

    from antiphon.sdk.authority.delegation import Grant, Holder, Holdings
    from antiphon.sdk.mesh import Mesh

VOID_SHOWN: Final = 20
SHORT_CID: Final = 8
STATE_WORDS: Final = {"not_yet": "not yet", "void": "no effect"}


@command
async def who(
    mesh: Mesh,
    *,
    show_all: bool = typer.Option(
        False, "--all", help="Include grants that have ended or not started."
    ),
) -> Answer:
    """Show who has which permissions, and from whom.

    Prints a tree that starts at the mesh's owner. Each line ends with the ids of its grants; use
    them with 'antiphon revoke'.
    """
    held = await mesh.authority.who()
    name = mesh.home.mesh().name
    facts = _holdings_object(held, name, show_all=show_all)
    return Answer(facts, lambda: _tell(held, name, show_all=show_all))


def _tell(held: Holdings, name: str, *, show_all: bool) -> None:
    _say_mesh(held, name)
    out.say("")
    below = _branches(held.tree.holders, held, show_all=show_all)
    tree = _Branch(_name(held.owner, "owner"), [], below)
    if out.is_terminal:
        out.console.print(_rich(tree))
    else:
        _say_plainly(tree, 0)
    _say_rest(held, show_all=show_all)


def _say_mesh(held: Holdings, name: str) -> None:
    out.pieces((f"mesh {name!r}", "strong"), (f" ({held.mesh})", "quiet"))
    is_owners = held.coordinator == held.owner
    rows: list[tuple[str, str]] = [
        ("owner", short_node(held.owner)),
        ("coordinator", "the owner" if is_owners else held.called(held.coordinator)),
    ]
    rows += [("route", f"{kind} → {held.called(did)}") for kind, did in held.routes.items()]
    rows += [("quarantined", held.called(did)) for did in held.quarantined]
    if held.authority == "open":
        rows.append(
            (
                "open",
                "everyone who can connect may submit and claim jobs; grants have no effect before"
                " 'antiphon rules authority=chain'",
            )
        )
    for head, words in rows:
        out.hanging([(f"  {head:12} ", "quiet")], [(words, "")])


def _say_rest(held: Holdings, *, show_all: bool) -> None:
    """Print what the tree does not show, and how to see it."""
    from antiphon.sdk.authority.delegation import in_words as rights

    ended = sum(grant.state.value != "live" for grant in held.tree.grants())
    lost = held.tree.void
    if not held.tree.holders:
        err.say("  the owner has granted nothing yet")
        err.say("  try: ", "antiphon delegate NODE --can claim --kind 'render.*' --until 2d")
    if not show_all:
        if ended or lost:
            words = f"{counted(ended + len(lost), 'grant')} not in force: antiphon who --all"
            err.pieces((words, "quiet"))
        return
    for grant in lost[:VOID_SHOWN]:
        route = f"{held.called(grant.issuer)} → {held.called(grant.audience)}"
        out.pieces((f"no effect: {route}  {rights([grant])}  {short_cid(grant.cid)}", "quiet"))
    if len(lost) > VOID_SHOWN:
        err.pieces((f"… and {len(lost) - VOID_SHOWN:,} more without effect", "quiet"))


# --- the tree ---------------------------------------------------------------------------------


class _Line(NamedTuple):
    """Grants with the same terms: what they permit and until when, and their ids."""

    words: list[Piece]
    ids: Piece


class _Branch(NamedTuple):
    head: list[Piece]
    lines: list[_Line]
    below: list[_Branch]


def _branches(holders: Iterable[Holder], held: Holdings, *, show_all: bool) -> list[_Branch]:
    """The holders that have grants to show."""
    shown = ((one, _shown(one, show_all=show_all)) for one in holders)
    return [_branch(one, grants, held, show_all=show_all) for one, grants in shown if grants]


def _shown(holder: Holder, *, show_all: bool) -> list[Grant]:
    return [one for one in holder.grants if show_all or one.state.value == "live"]


def _branch(holder: Holder, grants: list[Grant], held: Holdings, *, show_all: bool) -> _Branch:
    head = _name(holder.did, holder.alias)
    if holder.did == held.me:
        head.append((" (this process)", "quiet"))
    if holder.is_quarantined:
        head.append(("  ✗ quarantined: everything from it is rejected", "failed"))
    if holder.is_elsewhere:
        head.append(("  what it delegated is shown elsewhere", "quiet"))
    lines = [_line(list(alike), held.now_s) for alike in _alike(grants)]
    return _Branch(head, lines, _branches(holder.children, held, show_all=show_all))


def _name(did: str, alias: str) -> list[Piece]:
    node = short_node(did)
    return [(f"{alias} ", "strong"), (node, "quiet")] if alias else [(node, "strong")]


def _alike(grants: Sequence[Grant]) -> Iterable[Iterable[Grant]]:
    """Groups of grants that differ only in the command: `--can claim` makes two."""

    def terms(grant: Grant) -> tuple[str, ...]:
        ends = (f"{grant.from_s}", f"{grant.ends_s}", f"{grant.is_powerline}")
        return grant.state.value, *ends, *grant.kinds

    order = sorted(grants, key=lambda one: (one.state.value != "live", terms(one), one.seq))
    return (alike for _, alike in groupby(order, key=terms))


def terms_in_words(grants: Sequence[Grant], now_s: int) -> list[str]:
    """What each group of like grants permits, and until when."""
    found = (_line(list(alike), now_s) for alike in _alike(grants))
    return ["".join(text for text, _ in line.words) for line in found]


def _line(alike: list[Grant], now_s: int) -> _Line:
    from antiphon.sdk.authority.delegation import in_words as rights

    first, state = alike[0], alike[0].state.value
    is_live = state == "live"
    time = in_words(first.ends_s, now_s)
    if first.from_s is not None and first.from_s > now_s:
        time = f"{beginning_in_words(first.from_s, now_s)}, {time}"
    words: list[Piece] = [] if is_live else [(f"{STATE_WORDS.get(state, state)}: ", "quiet")]
    words.append((rights(alike), "" if is_live else "quiet"))
    if state != "revoked":
        words.append((f"  {time}", "quiet"))
    return _Line(words, (" ".join(short_cid(one.cid) for one in alike), "quiet"))


def short_cid(cid: str) -> str:
    """A grant's id as it is shown to people: its end, where ids differ."""
    return cid[-SHORT_CID:]


def _rich(branch: _Branch) -> Tree:
    from rich.console import Group
    from rich.table import Table
    from rich.tree import Tree

    def label(one: _Branch) -> Group:
        grid = Table.grid(padding=(0, GUTTER, 0, 0))
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_column(no_wrap=True)
        for line in one.lines:
            grid.add_row("", joined(line.words), joined([line.ids]))
        return Group(joined(one.head), *([grid] if one.lines else []))

    def grow(tree: Tree, one: _Branch) -> Tree:
        for inner in one.below:
            grow(tree.add(label(inner)), inner)
        return tree

    return grow(Tree(label(branch), guide_style="dim"), branch)


def _say_plainly(branch: _Branch, depth: int) -> None:
    indent = "  " * depth
    out.pieces((indent, ""), *branch.head)
    for line in branch.lines:
        out.pieces((f"{indent}  - ", ""), *line.words, ("  ", ""), line.ids)
    for inner in branch.below:
        _say_plainly(inner, depth + 1)


# --- for programs -----------------------------------------------------------------------------


def _holdings_object(held: Holdings, name: str, *, show_all: bool) -> dict[str, Any]:
    names = held.tree.names
    return {
        "name": name,
        **fields(held, "mesh", "authority", "owner", "coordinator", "quarantined"),
        "routes": [
            {"kind": kind, "node": did, "alias": names.get(did, "")}
            for kind, did in held.routes.items()
        ],
        "holders": _holder_objects(held.tree.holders, show_all=show_all),
        "void": [grant_object(one) for one in held.tree.void] if show_all else [],
    }


def _holder_objects(holders: Iterable[Holder], *, show_all: bool) -> list[dict[str, Any]]:
    return [
        {
            "node": holder.did,
            "alias": holder.alias,
            "quarantined": holder.is_quarantined,
            "elsewhere": holder.is_elsewhere,
            "grants": [grant_object(one) for one in grants],
            "holders": _holder_objects(holder.children, show_all=show_all),
        }
        for holder in holders
        if (grants := _shown(holder, show_all=show_all))
    ]


def grant_object(grant: Grant) -> dict[str, Any]:
    """A grant as JSON."""
    return {
        "grant": grant.cid,
        "from": grant.issuer,
        "node": grant.audience,
        **fields(grant, "command", "kinds", "from_s", "until_s", "ends_s", "seq"),
        "passes_on": grant.is_powerline,
        "state": grant.state.value,
    }
