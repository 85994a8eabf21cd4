"""`antiphon recover`: replaces the owner's key, with the recovery key."""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING, Any

from antiphon.interfaces.cli.commands.authority.rules import in_words
from antiphon.interfaces.cli.screen.command import Answer, command, fields
from antiphon.interfaces.cli.screen.options import print_json, short_node
from antiphon.interfaces.cli.screen.recovery_key import recovery_seed, recovery_text
from antiphon.interfaces.cli.screen.terminal import ago, counted, out

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from antiphon.sdk.hosting.hosted_mesh import Recovered, Review, Setting


@command
def recover(home: Path | None, *, as_json: bool) -> Coroutine[Any, Any, Answer]:
    """Replace a lost or stolen owner key.

    Asks for the recovery key (or reads it from standard input), creates a new owner key and a new
    recovery key here, shows the new recovery key, and activates both. All permissions that the
    old owner granted end. If the command is interrupted, run it again: it continues.
    """
    seed = recovery_seed(_asked())

    async def work() -> Answer:
        from antiphon.sdk.hosting.hosted_mesh import recover as put_in_force
        from antiphon.sdk.mesh import StateDirectory

        show = _show_json if as_json else _show
        done = await put_in_force(StateDirectory.find(home), seed, show=show)
        return Answer({"event": "recovered", **_told(done)}, lambda: _tell(done))

    return work()


def _asked() -> str:
    if sys.stdin.isatty():
        return getpass.getpass("Recovery key: ")
    return sys.stdin.read(1024)


# --- for people -------------------------------------------------------------------------------


def _show(seed: bytes) -> None:
    out.say("New recovery key: write it down now. It replaces the one that you typed once this")
    out.say("command prints ✓ below, and is stored nowhere after that.")
    out.say(f"  {recovery_text(seed)}")
    out.say("")


def _tell(done: Recovered) -> None:
    out.pieces(
        ("✓ ", "succeeded"),
        (f"{short_node(done.owner)} owns the mesh now, instead of {short_node(done.replaced)}", ""),
    )
    if done.grants_ended:
        out.say(
            f"  {counted(done.grants_ended, 'grant')} of the old owner ended:"
            " invite those machines again, or use antiphon delegate"
        )
    out.say("")
    out.say("If the old key was stolen, check what the thief may have set:")
    _tell_review(done.review, done.owner)


def _tell_review(review: Review, owner: str) -> None:
    def named(node: str) -> str:
        return f"{review.names.get(node, '')} {short_node(node)}".strip()

    office = review.coordinator
    now = "the new owner" if office.now == owner else named(office.now)
    words = f"{named(office.before)} until now{_set_by(office)}; from now on {now}"
    out.hanging([("  coordinator  ", "strong")], [(words, "")])
    for one in review.routes:
        words = f"only {named(one.now)} may claim {one.name}{_set_by(one)}"
        out.hanging([("  route        ", "strong")], [(words, "")])
    for one in review.rules:
        was, is_now = in_words(one.name, one.before), in_words(one.name, one.now)
        words = f"{one.name} is {is_now}, was {was} at first{_set_by(one)}"
        out.hanging([("  rule         ", "strong")], [(words, "")])
    if not review.routes:
        out.say("  no routes")
    if not review.rules:
        out.say("  every rule is as it was at first")
    out.say("To change it: antiphon coordinator, antiphon route and antiphon rules.")


def _set_by(one: Setting) -> str:
    if not one.seq:
        return ""
    return f" (set by {short_node(one.by)} in record {one.seq:,}, {ago(one.commit_ms)})"


# --- for programs -----------------------------------------------------------------------------


def _show_json(seed: bytes) -> None:
    print_json({"event": "recovery_key", "recovery": recovery_text(seed)})


def _told(done: Recovered) -> dict[str, Any]:
    def one(setting: Setting) -> dict[str, Any]:
        return fields(setting, "name", "before", "now", "seq", "by", "commit_ms")

    return {
        "owner": done.owner,
        "replaced": done.replaced,
        "recovery": recovery_text(done.recovery_seed),
        "grants_ended": done.grants_ended,
        "coordinator": one(done.review.coordinator),
        "routes": [one(setting) for setting in done.review.routes],
        "rules": [one(setting) for setting in done.review.rules],
    }
