"""Who agreed with whom: the record of the parties that ran replicas, from the log alone (spec §9).

A party disagreed where its replica succeeded with other outputs than those that a quorum agreed
on. Where there was no quorum, nobody can say who was right, and each is undecided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct, field

from antiphon.core.derivations.quorum_derivation import Party
from antiphon.core.families.jobs.replicas import is_child
from antiphon.core.families.jobs.state import Job, State


class PartyRecord(Struct):
    """What one party's replicas came to."""

    party: str
    done: int = 0
    """Replicas that it ran to a result."""
    agreed: int = 0
    disagreed: int = 0
    undecided: int = 0
    failed: int = 0
    against: Counter[str] = field(default_factory=Counter)
    """The parties that agreed on another result, and how often."""
    jobs: list[tuple[str, str]] = field(default_factory=list)
    """The jobs in which it disagreed: kind and id of the parent."""


def add(
    records: dict[str, PartyRecord], parent: Job, children: Sequence[Job], party: Party
) -> None:
    """Count what the children of one ended job came to."""
    ran = [
        (party(child) or child.claimer, child)
        for child in children
        if is_child(child, parent) and child.claimer and child.is_terminal
    ]
    is_decided = parent.state is State.SUCCEEDED
    agreed = {
        who
        for who, child in ran
        if is_decided and child.state is State.SUCCEEDED and child.fingerprint == parent.fingerprint
    }
    for who, child in ran:
        record = records.setdefault(who, PartyRecord(who))
        if child.state is not State.SUCCEEDED:
            record.failed += child.state is State.FAILED
            continue
        record.done += 1
        if not is_decided:
            record.undecided += 1
        elif child.fingerprint == parent.fingerprint:
            record.agreed += 1
        else:
            record.disagreed += 1
            record.against.update(agreed)
            record.jobs.append((parent.kind, parent.id))
