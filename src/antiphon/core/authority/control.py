"""What holds for the whole mesh from one control op to the next (spec §5, §7.4).

An interval is small whatever came before it. What grows (delegations, routes, quarantines, the ids
of control records) stands in append-only books that all intervals share and ask by sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.delegations import Grants
from antiphon.core.authority.register import Register
from antiphon.core.authority.rules import Rules, contradiction
from antiphon.core.record import subjects
from antiphon.core.record.verdict import Verdict
from antiphon.errors import Outdated

if TYPE_CHECKING:
    from antiphon.core.ucan import Delegation


class Standing(Struct, frozen=True):
    """What was shown against an author, and whether the owner has readmitted it since."""

    shown_seq: int
    shown_hlc: tuple[int, int]
    """The timestamp that it had signed twice: older evidence says nothing new."""
    is_readmitted: bool = False


class Rise(Struct, frozen=True):
    """A higher protocol that was announced: it judges what is committed from `from_ms` on."""

    protocol: int
    from_ms: int
    rules: Rules | None
    """The rules that come with it; None where this code cannot read them."""


class Control(Struct, frozen=True, kw_only=True):
    """Control state from `since` on, until the next one."""

    mesh: str
    since: int
    owner: str
    recovery: str
    coordinator: str
    rules: Rules
    owner_hlc: tuple[int, int]
    """The newest accepted owner op: a later one must be newer still."""
    rise: Rise | None = None
    grants: Grants
    """Delegations and revocations: one book for all intervals, asked by sequence."""
    targets: Register[str]
    """By kind prefix, the only node that may claim below it; empty where the route was cleared."""
    standings: Register[Standing]
    """Authors that were shown to equivocate."""
    op_ids: dict[int, str]
    """The id of every control record by its sequence, rejected ones included: what deps name."""
    known_protocol: int = 1
    """The newest protocol that this code can read."""

    def at_time(self, commit_ms: int) -> Control:
        """The state that judges a record with this commit stamp: a rise may have come into force.

        Values that cannot hold together do not take effect; the protocol does all the same.
        """
        rise = self.rise
        if rise is None or commit_ms < rise.from_ms:
            return self
        if rise.protocol > self.known_protocol:
            raise outdated(self.mesh, rise.protocol, self.known_protocol)
        rules = rise.rules
        if rules is None or contradiction(rules) is not None:
            rules = replace(self.rules, protocol=rise.protocol)
        return replace(self, rules=rules, rise=None)

    @property
    def routes(self) -> dict[str, str]:
        """Every route in force, by its kind prefix."""
        return {kind: who for kind, who in self.targets.all_at(self.since).items() if who}

    def route_for(self, kind: str) -> str | None:
        """The node that jobs of this kind are routed to, by the longest prefix, or None."""
        if not self.targets:
            return None
        prefix = kind
        while prefix:
            target = self.targets.at(self.since, prefix)
            if target:
                return target
            prefix = prefix.rpartition(".")[0]
        return None

    def standing_of(self, did: str) -> Standing | None:
        """What was shown against an author so far, or None."""
        return self.standings.at(self.since, did) if self.standings else None

    def is_quarantined(self, did: str) -> bool:
        """Whether nothing that this author writes counts. The owner's word always does."""
        standing = self.standing_of(did)
        return standing is not None and not standing.is_readmitted and did != self.owner

    @property
    def quarantined(self) -> list[str]:
        """Everybody who is quarantined."""
        return [did for did in self.standings.all_at(self.since) if self.is_quarantined(did)]

    def selection_for(self, kind: str) -> str:
        """How workers for this kind are chosen, by the longest prefix."""
        best = max(
            (entry for entry in self.rules.selection if subjects.covers(entry[0], kind)),
            key=lambda entry: len(entry[0]),
            default=("", "queue"),
        )
        return best[1]


class Said(Struct, frozen=True):
    """Something that a register is to hold from an op on."""

    register: Register[Any]
    key: str
    value: object


class Change(Struct, frozen=True):
    """What an accepted op changes of control: data, for `ControlHistory.take` to write down."""

    control: Control | None = None
    """The interval that begins with it; None where the present one goes on."""
    said: Said | None = None
    granted: Delegation | None = None
    revoked: tuple[str, str] | None = None
    """A delegation, and who took it back."""
    unknown_protocol: int = 0
    """A protocol that this code does not have, and that is in force from here on."""


def outdated(mesh: str, protocol: int, known: int) -> Outdated:
    """What stops code that meets a protocol which it does not have."""
    return Outdated(
        f"mesh {mesh} runs protocol {protocol} by now; this version reads {known} and stops",
        hint="upgrade this node: pip install -U antiphon",
    )


def time_fault(rules: Rules, commit_ms: int, hlc: tuple[int, int]) -> Verdict | None:
    """Whether an op's own time is bearable next to its commit time."""
    wall_ms = hlc[0]
    if wall_ms > commit_ms + rules.max_drift_ms:
        return Verdict.DRIFT
    if wall_ms < commit_ms - rules.horizon_ms:
        return Verdict.TOO_OLD
    return None
