"""What a person is told about the outbox: once, what held and what did not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from antiphon.interfaces.cli.screen.options import short
from antiphon.interfaces.cli.screen.terminal import Piece, ago, err, out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.errors import Unavailable
    from antiphon.sdk.mesh import Mesh
    from antiphon.sdk.outbox.namespace import OutboxItem

STYLES: Final = {"waiting": "waiting", "asks": "failed", "held": "succeeded", "dropped": "failed"}
WORDS: Final = {
    "waiting": "tentative",
    "asks": "needs you",
    "held": "the mesh has it",
    "dropped": "dropped",
}


def item_object(item: OutboxItem) -> dict[str, Any]:
    """An item as JSON."""
    return {
        "item": item.id,
        "state": item.state,
        "what": item.what.words,
        "id": item.what.name,
        "at_ms": item.at_ms,
        "why": item.why,
        "hint": _hint(item),
    }


def item_pieces(item: OutboxItem) -> list[Piece]:
    """An item as a line."""
    why = f": {item.why}" if item.why else ""
    hint = _hint(item)
    why = f"{why}; {hint}" if hint else why
    return [
        (f"{WORDS[item.state]:<16}", STYLES[item.state]),
        (f"{item.id}  {item.what.words}{why}", ""),
    ]


def _hint(item: OutboxItem) -> str:
    """What a person can type who has to decide."""
    if item.state != "asks":
        return ""
    return f"antiphon outbox retry {item.id} sends it, antiphon outbox drop {item.id} removes it"


def tentative_row(item: OutboxItem) -> list[Piece]:
    """A job that waits, as a row of the list of jobs."""
    kind, job = item.job() or ("", item.what.name)
    return [
        (short(job), ""),
        ("… tentative", "waiting"),
        (kind, ""),
        (ago(item.at_ms), "quiet"),
        ("", ""),
        ("", ""),
        ("waits on this machine", "quiet"),
    ]


def say_tentative(what: str, why: Unavailable | None) -> None:
    """Tell a person that something waits, and what may be done about it."""
    err.say(f"tentative: the mesh cannot be reached, so the {what} waits on this machine")
    err.say("  it is sent when the mesh can be reached again: ", "antiphon outbox")
    if why is not None:
        err.say("  why: ", f"{why.message}; {why.hint}" if why.hint else why.message)


def say_sent(mesh: Mesh, *, as_json: bool) -> None:
    """Tell a person how items of the outbox ended; programs ask for it themselves."""
    if as_json or mesh.engine == "memory":
        return
    ended = [one for one in mesh.outbox.items() if not one.is_tentative]
    say_ended(ended)
    mesh.outbox.told(ended)


def say_ended(ended: Sequence[OutboxItem]) -> None:
    """Print how items ended, beside what a command is asked for."""
    for one in ended:
        err.pieces(("outbox: ", "quiet"), *item_pieces(one))


def say_items(items: Sequence[OutboxItem]) -> None:
    """Print items as an answer."""
    for one in items:
        out.pieces(*item_pieces(one))
