"""What the coordinator writes about a job with replicas: children, a resolve, or a cancellation.

It is a pure function of the states of the parent and its children, so a new coordinator goes on
where the last one stopped, and every full node can derive it again (spec §9).

Children that told nothing new do not count: a second one for the same party, or a job of somebody
else that took a child's id. When all children have ended and there is no quorum, each of those is
made up for by one more child, up to as many as there were replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from antiphon.core.families.jobs.replicas import is_child, most_children
from antiphon.core.families.jobs.state import OPEN, Job, State
from antiphon.core.record.ids import short_node

NO_QUORUM: Final = "quorum: "
"""How the reason of such a cancellation begins."""
_SHORT: Final = 12

Party = Callable[[Job], str]
"""For whom a child was run (`replicas.party_of`)."""


class NextStep(Struct, frozen=True):
    """What follows for a parent; nothing while it has to wait."""

    submit: tuple[int, ...] = ()
    """Indexes of children to submit."""
    resolve: tuple[Job, ...] = ()
    """Children that are a quorum."""
    give_up: str = ""
    """Why there will be no quorum."""
    drop: tuple[Job, ...] = ()
    """Children of a job that has ended, whose results are no longer wanted."""


def derive(parent: Job, children: Sequence[Job], party: Party) -> NextStep:
    """What follows for a job with replicas; `children` are those on the log, by index."""
    own = [child for child in children if is_child(child, parent)]
    if parent.is_terminal:
        return NextStep(drop=_unwanted(parent, own))
    found = quorum_in(own, parent.quorum, party)
    if found:
        return NextStep(resolve=found)
    if len(children) < parent.replicas:
        return NextStep(submit=tuple(range(len(children), parent.replicas)))
    if not all(child.is_terminal for child in own):
        return NextStep()
    succeeded = [child for child in own if child.state is State.SUCCEEDED]
    told = len({party(child) for child in succeeded} - {""})
    idle = len(children) - told - (len(own) - len(succeeded))
    allowed = min(parent.replicas + idle, most_children(parent.replicas))
    agree = max((len(who) for _, who in said_by(own, party)), default=0)
    if allowed > len(children) and agree + allowed - len(children) >= parent.quorum:
        return NextStep(submit=tuple(range(len(children), allowed)))
    return NextStep(give_up=_why(parent, own, party))


def quorum_in(own: Sequence[Job], quorum: int, party: Party) -> tuple[Job, ...]:
    """The first children on the log that are a quorum; none if there is none yet."""
    by_result: dict[str, dict[str, Job]] = {}
    for child in sorted(own, key=lambda child: child.ended_seq):
        who = party(child) if child.state is State.SUCCEEDED else ""
        if not who:
            continue
        agreeing = by_result.setdefault(child.fingerprint, {})
        agreeing.setdefault(who, child)
        if len(agreeing) == quorum:
            return tuple(agreeing.values())
    return ()


def said_by(own: Sequence[Job], party: Party) -> list[tuple[str, list[str]]]:
    """Each result that children ended with, and the parties that say so; the most common first."""
    found: dict[str, list[str]] = {}
    for child in own:
        if child.state is State.SUCCEEDED:
            who = party(child)
            parties = found.setdefault(child.fingerprint, [])
            if who and who not in parties:
                parties.append(who)
    return sorted(found.items(), key=lambda pair: (-len(pair[1]), pair[0]))


def _unwanted(parent: Job, own: Sequence[Job]) -> tuple[Job, ...]:
    """Of a job that has its result, children that nobody has begun; of another, all."""
    if parent.state is State.SUCCEEDED:
        return tuple(child for child in own if child.state in OPEN)
    return tuple(child for child in own if not child.is_terminal)


def _why(parent: Job, own: Sequence[Job], party: Party) -> str:
    said = said_by(own, party)
    parts = [
        f"{', '.join(map(short_node, who)) or 'nobody known'} said {_name(result)}"
        for result, who in said
    ]
    without = sum(child.state is not State.SUCCEEDED for child in own)
    if without:
        parts.append(f"{without} ended without a result")
    most = max((len(who) for _, who in said), default=0)
    needed = f"{most} of the {parent.quorum} needed agree"
    return f"{NO_QUORUM}{needed}; {'; '.join(parts) or 'no replica was run'}"


def _name(result: str) -> str:
    return result.removeprefix("blake3:")[:_SHORT]
