"""The control state: what is in force for the whole mesh between two control ops (spec §5, §7.4).

An interval is small, however long the log is. What grows (delegations, routes, quarantines, the
ids of control records) is in append-only tables that all intervals share and query by sequence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.delegations import Grants
from antiphon.core.authority.register import Register
from antiphon.core.authority.rules import Rules, contradiction
from antiphon.core.record import subjects
from antiphon.core.record.verdict import Verdict
from antiphon.core.tempo.policy import DEFAULT_POLICY, TempoPolicy
from antiphon.errors import Outdated

if TYPE_CHECKING:
    from antiphon.core.ucan import Delegation


class Quarantine(Struct, frozen=True):
    """The evidence against an author, and whether the owner has readmitted it since."""

    shown_seq: int
    shown_hlc: tuple[int, int]
    """The timestamp that it signed twice: older evidence adds nothing."""
    is_readmitted: bool = False


class AnnouncedProtocol(Struct, frozen=True):
    """An announced higher protocol: it judges what is committed from `from_ms` on."""

    protocol: int
    from_ms: int
    rules: Rules | None
    """The rules that come with it; None if this code cannot read them."""


class Archive(Struct, frozen=True, gc=False):
    """An accepted `mesh.archive`: what had ended long enough before is empty behind it.

    `antiphon.core.lane_archive` says which lanes those are.
    """

    seq: int
    before_ms: int
    memo_before_ms: int
    """For what somebody may ask for again: content without a nonce, and keys."""
    drift_ms: int
    """The greatest drift that the mesh's rules have allowed so far."""

    def limit_ms(self, *, is_asked_again: bool) -> int:
        """The archive's time for a lane."""
        return self.memo_before_ms if is_asked_again else self.before_ms


NO_ARCHIVE: Final = Archive(0, -1, -1, 0)


class Pause(Struct, frozen=True, kw_only=True):
    """Nobody may begin jobs that have all of what is given here."""

    kind: str | None
    label: str | None
    plan: str | None
    by: str
    since_ms: int
    reason: str

    def covers(self, kind: str, label: str, plan: str) -> bool:
        """Whether it is about a job of this kind, with this label, of a plan of this name."""
        return (
            (self.kind is None or subjects.covers(self.kind, kind))
            and self.label in (None, label)
            and self.plan in (None, plan)
        )


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
    tempo: TempoPolicy = DEFAULT_POLICY
    """The tempo policy; no verdict depends on it."""
    tempo_ms: int = 0
    """When that policy was committed; 0 if the owner has set none."""
    pauses: tuple[Pause, ...] = ()
    """What nobody may begin now, oldest first; few."""
    pause_hlc: tuple[int, int] = (0, 0)
    """The newest accepted op about pauses. The coordinator writes them too, so the owner's other
    ops do not follow it."""
    rise: AnnouncedProtocol | None = None
    archive: Archive = NO_ARCHIVE
    """The newest archive."""
    drift_most_ms: int
    """The greatest drift that any rules so far have allowed, or that announced ones will."""
    archives: list[Control]
    """The states that began with an archive: one list for all intervals, in order."""
    grants: Grants
    """Delegations and revocations: one table for all intervals, queried by sequence."""
    targets: Register[str]
    """By kind prefix, the only node that may claim below it; empty if the route was cleared."""
    quarantines: Register[Quarantine]
    """Authors with evidence of equivocation against them."""
    op_ids: dict[int, str]
    """The id of every control record by its sequence, rejected ones included; deps name these."""
    known_protocol: int = 1
    """The newest protocol that this code can read."""

    def at_time(self, commit_ms: int) -> Control:
        """The state at this commit time: an announced protocol may have come into force.

        Rules that contradict each other do not take effect; the protocol still does.
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

    def pause_of(self, kind: str, label: str = "", plan: str = "") -> Pause | None:
        """Why nobody may begin such a job now: the oldest pause that covers it."""
        return next((one for one in self.pauses if one.covers(kind, label, plan)), None)

    def quarantine_of(self, did: str) -> Quarantine | None:
        """The evidence against an author so far, or None."""
        return self.quarantines.at(self.since, did) if self.quarantines else None

    def is_quarantined(self, did: str) -> bool:
        """Whether this author's ops are rejected. The owner cannot be quarantined."""
        quarantine = self.quarantine_of(did)
        return quarantine is not None and not quarantine.is_readmitted and did != self.owner

    @property
    def quarantined(self) -> list[str]:
        """All quarantined authors."""
        return [did for did in self.quarantines.all_at(self.since) if self.is_quarantined(did)]

    def selection_for(self, kind: str) -> str:
        """How workers for this kind are chosen, by the longest prefix."""
        best = max(
            (entry for entry in self.rules.selection if subjects.covers(entry[0], kind)),
            key=lambda entry: len(entry[0]),
            default=("", "queue"),
        )
        return best[1]


class RegisterWrite(Struct, frozen=True):
    """A value to write into a register, in force from an op on."""

    register: Register[Any]
    key: str
    value: object


class Change(Struct, frozen=True):
    """What an accepted op changes in the control state; `ControlHistory.take` applies it."""

    control: Control | None = None
    """The interval that begins with it; None if the current one continues."""
    write: RegisterWrite | None = None
    granted: Delegation | None = None
    revoked: tuple[str, str] | None = None
    """A delegation, and who revoked it."""
    unknown_protocol: int = 0
    """A protocol that is in force from here on, but unknown to this code."""


def outdated(mesh: str, protocol: int, known: int) -> Outdated:
    """The error that stops code when the mesh runs a protocol that it does not have."""
    return Outdated(
        f"mesh {mesh} now runs protocol {protocol}; this version only has {known} and stops",
        hint="upgrade this node: pip install -U antiphon",
    )


def time_fault(rules: Rules, commit_ms: int, hlc: tuple[int, int]) -> Verdict | None:
    """Whether an op's own time is too far ahead of, or behind, its commit time."""
    wall_ms = hlc[0]
    if wall_ms > commit_ms + rules.max_drift_ms:
        return Verdict.DRIFT
    if wall_ms < commit_ms - rules.horizon_ms:
        return Verdict.TOO_OLD
    return None
