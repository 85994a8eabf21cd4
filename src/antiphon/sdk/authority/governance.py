"""The rules of a mesh: what each means, and which changes are possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, get_args

import msgspec
from msgspec import Struct

from antiphon.core.authority.grant_reach import State
from antiphon.core.authority.rules import Rules, Selection, contradiction
from antiphon.errors import Malformed, Rejected
from antiphon.runtime.caller.holdings import Holdings

if TYPE_CHECKING:
    from collections.abc import Mapping


SELECTIONS: Final[tuple[str, ...]] = get_args(Selection)
"""How workers for a kind can be chosen."""
MEANINGS: Final = {
    "protocol": "The version of the log's rules; never lowered, raised with a week's notice.",
    "authority": "chain: everything needs a grant from the owner. open: for development.",
    "max_drift_ms": "How far an author's clock may be ahead of the engine's; at least 100 ms.",
    "horizon_ms": "Older ops are rejected, and ids are remembered this long; at least an hour.",
    "lease_min_ms": "The shortest lease.",
    "lease_max_ms": "The longest lease, whatever a job asks for.",
    "lease_ms": "The first lease of a claim, unless the job says otherwise.",
    "lease_ms_max": "How long a lease may grow, unless the job says otherwise.",
    "attempts": "Failures after which a job has failed, unless it says otherwise.",
    "attempts_max": "The most attempts that a job may ask for.",
    "yields_max": "How often a job may be given back for other reasons.",
    "postponed_max": "How often a job may ask for another try later.",
    "continuations_max": "How often a job may give up its tenure to wait for its children.",
    "retry_after_max_ms": "The longest pause that a worker may ask for when it gives a job back.",
    "start_by_ms": "How long a job may wait to be claimed, unless it says otherwise.",
    "claim_window_ms": "How long each rank waits for the one before it under rendezvous.",
    "offer_after_ms": "How long a job may be unclaimed before it is announced again.",
    "retention_ms": "How long finished jobs stay on the log.",
    "artifact_ttl_ms": "How long a finished job's artifacts are kept.",
    "plans_max": "How many plans of one member run: the oldest.",
    "derived_per_minute": "Jobs that one member's plans submit within any minute, and replicas.",
    "tracebacks": "Whether the log keeps the tracebacks of failed handlers: true or false.",
    "audit_inference": "Whether model calls are audited on the whole mesh: true or false.",
    "redact_inference": "Of a model call, only the digest is kept: prompt,context,output or none.",
    "selection": "How workers are chosen, by kind: render:rendezvous,build:queue. Else queue.",
    "limits": "Jobs at once or per period, by label; 'antiphon limits' changes them.",
}
"""A sentence for every rule."""


class Changed(Struct, frozen=True, kw_only=True):
    """A change by the owner: the value before and after."""

    before: str | None
    after: str | None
    seq: int
    """Its place on the log; 0 if the value was already the same."""


def acts_through(held: Holdings, node: str) -> list[str]:
    """The keys to which a machine delegates everything: its processes sign with those.

    A route or the coordinator's role belongs to one key, and ops of other keys do not count.
    """
    live = (one for one in held.tree.grants() if one.state is State.LIVE)
    passed_on = (one.audience for one in live if one.is_powerline and one.issuer == node)
    return list(dict.fromkeys(passed_on))


class RulesChanged(Struct, frozen=True, kw_only=True):
    """The rules before and after; if nothing changed both are the same, without a sequence."""

    before: dict[str, Any]
    after: dict[str, Any]
    seq: int


def rule_values(of: Rules | None = None) -> dict[str, Any]:
    """Every rule and its value; the defaults if none are given."""
    return msgspec.structs.asdict(of or Rules())


def changed_rules(before: Rules, changes: Mapping[str, object], *, newest: int) -> Rules:
    """The rules with some changed, or `Rejected` with what is wrong.

    `newest` is the newest protocol that this version knows.
    """
    values = rule_values(before)
    for name, value in changes.items():
        if name not in values:
            raise Malformed(f"there is no rule {name!r}", reason="rules", hint="antiphon rules")
        try:
            msgspec.convert({name: value}, Rules)
        except msgspec.ValidationError as problem:
            why = str(problem).partition(" - at ")[0].replace("`", "")
            raise Malformed(
                f"{name} cannot be {value!r}: {why[:1].lower()}{why[1:]}", reason="rules"
            ) from problem
    after = msgspec.convert({**values, **changes}, Rules)
    if not before.protocol <= after.protocol <= newest:
        raise Rejected(
            f"protocol cannot be {after.protocol}: it is {before.protocol}, is never lowered, and"
            f" this version reads up to {newest}",
            reason="protocol",
        )
    why_not = contradiction(after)
    if why_not is not None:
        raise Rejected(
            f"these rules contradict each other: {why_not}",
            reason="rules",
            hint="give both values at once; nothing was changed",
        )
    return after
