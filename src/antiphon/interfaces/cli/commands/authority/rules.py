"""`antiphon rules`: shows and changes the rules of the mesh."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from antiphon.interfaces.cli.commands.authority.delegate import acting
from antiphon.interfaces.cli.commands.authority.limits import limit_words
from antiphon.interfaces.cli.screen.command import Answer, command
from antiphon.interfaces.cli.screen.durations import span_ms, span_words
from antiphon.interfaces.cli.screen.exits import WrongUsage
from antiphon.interfaces.cli.screen.options import open_mesh
from antiphon.interfaces.cli.screen.terminal import Piece, err, moment, out

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from antiphon.sdk.authority.delegation import RulesChanged

NONE: Final = "none"
SWITCHES: Final = frozenset({"audit_inference", "tracebacks"})
SWITCH_WORDS: Final = {"true": True, "on": True, "false": False, "off": False}
WARNINGS: Final = {
    "chain": "closed: only the owner and nodes with a grant may act; antiphon who lists grants",
    "open": "open: everyone who can connect may submit, claim and cancel; for development only",
}


@command
def rules(
    home: Path | None,
    changes: list[str] | None = typer.Argument(
        None,
        metavar="[NAME=VALUE]...",
        help="Rules to change, such as lease_ms=30s. Default: list all rules.",
        show_default=False,
    ),
) -> Coroutine[Any, Any, Answer]:
    """Show the mesh's rules, or change some.

    Only the owner can change rules. A change applies to all nodes from its record on.
    """
    if not changes:
        return _list(home)
    wanted = dict(_parse(change) for change in changes)
    if len(wanted) < len(changes):
        raise WrongUsage("a rule is given twice", hint="antiphon rules NAME=VALUE")
    return _change(home, wanted)


def _parse(change: str) -> tuple[str, Any]:
    from antiphon.sdk.authority.delegation import MEANINGS

    name, is_set, text = change.partition("=")
    name = name.strip()
    if not is_set:
        raise WrongUsage(f"{change!r} is not NAME=VALUE", hint="antiphon rules lease_ms=30s")
    if name not in MEANINGS:
        near = get_close_matches(name, MEANINGS, n=1)
        hint = f"did you mean {near[0]}?" if near else "antiphon rules lists them"
        raise WrongUsage(f"there is no rule {name!r}", hint=hint)
    return name, parse_value(name, text.strip())


def parse_value(name: str, text: str) -> Any:
    """A rule's value as it was typed; bounds are checked later."""
    is_number = text.isascii() and text.isdecimal()
    if "_ms" in name:
        length_ms = int(text) if is_number else span_ms(text)
        if length_ms is None:
            raise WrongUsage(f"{name} is a duration, not {text!r}", hint=f"{name}=30s")
        return length_ms
    if name == "selection":
        return _parse_selection(text)
    if name == "limits":
        if text == NONE:
            return []
        raise WrongUsage(
            "limits have a command of their own",
            hint="antiphon limits gpu --at-once 3 --kind 'render.*'",
        )
    if name == "redact_inference":
        return [] if text == NONE else [one.strip() for one in text.split(",")]
    if name in SWITCHES:
        if text.lower() not in SWITCH_WORDS:
            raise WrongUsage(f"{name} is true or false, not {text!r}", hint=f"{name}=false")
        return SWITCH_WORDS[text.lower()]
    return int(text) if is_number else text


def _parse_selection(text: str) -> list[tuple[str, str]]:
    from antiphon.sdk.authority.delegation import SELECTIONS

    if text == NONE:
        return []
    chosen: list[tuple[str, str]] = []
    for entry in text.split(","):
        prefix, _, how = entry.strip().partition(":")
        if how not in SELECTIONS:
            raise WrongUsage(
                f"{entry!r} is not KIND:queue or KIND:rendezvous",
                hint="selection=render:rendezvous,build:queue, or selection=none",
            )
        chosen.append((prefix.removesuffix(".*"), how))
    return chosen


def in_words(name: str, value: Any) -> str:
    """A rule's value as people write it."""
    if "_ms" in name:
        return span_words(value)
    if name == "selection":
        return ",".join(f"{prefix}:{how}" for prefix, how in value) or NONE
    if name == "limits":
        return ", ".join(f"{one.label}: {limit_words(one)}" for one in value) or NONE
    if name == "redact_inference":
        return ",".join(value) or NONE
    return str(value).lower() if name in SWITCHES else str(value)


async def _list(home: Path | None) -> Answer:
    from antiphon.sdk.authority.delegation import MEANINGS, rule_values

    async with open_mesh(home) as mesh:
        values, rise, defaults = (
            rule_values(mesh.authority.rules),
            mesh.authority.announced,
            rule_values(),
        )

    def words() -> None:
        rows = [_row(name, value, defaults[name], MEANINGS[name]) for name, value in values.items()]
        out.table(("RULE", "VALUE", "DEFAULT", "MEANING"), rows, flexible=3, wraps=True)
        if rise is not None:
            out.say(f"protocol {rise.protocol} is announced; it starts at {moment(rise.from_ms)}")

    told = {
        name: {"value": value, "default": defaults[name], "meaning": MEANINGS[name]}
        for name, value in values.items()
    }
    announced = rise and {"protocol": rise.protocol, "from_ms": rise.from_ms}
    return Answer({"rules": told, "announced": announced}, words)


def _row(name: str, value: Any, default: Any, meaning: str) -> list[Piece]:
    is_default = value == default
    return [
        (name, ""),
        (in_words(name, value), "" if is_default else "strong"),
        ("✓" if is_default else in_words(name, default), "quiet"),
        (meaning, "quiet"),
    ]


async def _change(home: Path | None, wanted: dict[str, Any]) -> Answer:
    async with acting(home) as mesh:
        changed = await mesh.authority.set_rules(wanted)
    before, after = changed.before, changed.after
    differs = [name for name in wanted if before[name] != after[name]]
    told = {name: {"before": before[name], "after": after[name]} for name in differs}
    return Answer({"changed": told, "seq": changed.seq}, lambda: _tell(changed, wanted, differs))


def _tell(changed: RulesChanged, wanted: dict[str, Any], differs: list[str]) -> None:
    for name in wanted:
        now = in_words(name, changed.after[name])
        if name in differs:
            was = in_words(name, changed.before[name])
            out.pieces(("✓ ", "succeeded"), (name, "strong"), (f"  {was} → {now}", ""))
        else:
            out.say(f"  {name} is already {now}")
    if "protocol" in differs:
        from antiphon.sdk.authority.delegation import NOTICE_MS

        err.say(
            f"  announced: it takes effect in {span_words(NOTICE_MS)}, together with the other"
            " changes made here; upgrade all nodes by then"
        )
    elif changed.seq:
        err.pieces((f"  in force from record {changed.seq:,} on", "quiet"))
    if "authority" in differs:
        err.say(f"  {WARNINGS[changed.after['authority']]}")
