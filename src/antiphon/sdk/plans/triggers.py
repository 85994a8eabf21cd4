"""When a plan submits its job: `cron(...)` and `on(...)`, checked where a person wrote them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Struct

from antiphon.core.authority.scope import filter_of
from antiphon.core.families.jobs.derivation import Cron, Ending, Missed, Reaction, Trigger
from antiphon.errors import Malformed

if TYPE_CHECKING:
    from datetime import datetime

B = TypeVar("B", bound=Struct)
ENDINGS: Final[tuple[Ending, ...]] = ("succeeded", "failed", "aborted", "ended")


def cron(
    expression: str, *, zone: str = "UTC", missed: Missed = "last", start: datetime | None = None
) -> Cron:
    """When: at the ticks of a cron expression. `Malformed` if it, or the zone, is not valid."""
    from antiphon.runtime.plans.cron_ticks import CronTicks, zones_like

    try:
        CronTicks(expression, zone)
    except Malformed as problem:
        if problem.reason != "zone":
            raise
        raise Malformed(problem.message, reason="zone", hint=zones_like(zone)) from None
    if missed not in ("skip", "last", "all"):
        raise Malformed(
            f"{missed!r} is not what can become of missed ticks",
            reason="missed",
            hint="use skip (none of them), last (only the newest) or all (up to 1,000 of them)",
        )
    from_ms = None if start is None else round(start.timestamp() * 1000)
    return _checked(Cron, at=expression, zone=zone, missed=missed, from_ms=from_ms)


def on(
    ending: Ending, *, kind: str, result: str | None = None, output: str | None = None
) -> Reaction:
    """When: whenever a job of a kind, or of a pattern of kinds, ends so.

    `result` is the name of the input that is that job's result: a file for a command, a place
    such as `/args/0` for a task. With `output` it is the output of that name, such as a file that
    a command wrote; `result` is then the same name, unless it is given.
    """
    result = result or output
    if ending not in ENDINGS:
        raise Malformed(
            f"a job does not end {ending!r}",
            reason="ending",
            hint="use succeeded, failed, aborted, or ended for any of them",
        )
    if filter_of(kind) is None:
        raise Malformed(
            f"{kind!r} is not a kind or a pattern of kinds",
            reason="kind",
            hint="write a kind ('build.image'), everything below one ('build.*'), or '*'",
        )
    if result is not None and ending != "succeeded":
        raise Malformed(
            f"a job that has {ending} may have no result",
            reason="result",
            hint="a plan gets the result of a job that has succeeded: on('succeeded', …)",
        )
    return _checked(Reaction, on=ending, kinds=kind, result=result, output=output)


def ending_of(word: str) -> Ending | None:
    """A word as the way in which a job ends; None if it is none."""
    return next((one for one in ENDINGS if one == word), None)


def _checked(type_: type[B], **fields: object) -> B:
    given = {name: value for name, value in fields.items() if value is not None}
    try:
        return msgspec.convert(given | _tag(type_), type_)
    except msgspec.ValidationError as problem:
        raise Malformed(f"this trigger is not valid: {problem}", reason="plan") from problem


def _tag(type_: type[Struct]) -> dict[str, str]:
    config = type_.__struct_config__
    return {str(config.tag_field): str(config.tag)} if config.tag_field else {}


__all__ = ["Cron", "Ending", "Missed", "Reaction", "Trigger", "cron", "on"]
