"""The control state of a mesh at every place on its log (spec §5).

Control ops are few; jobs are many. So control state is kept as intervals: one immutable `Control`
from each accepted control op to the next, found by bisection. The verdict on an op uses the
interval at the op's own sequence. So a full node that is far ahead and a light worker that has
just started judge the same record alike.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from antiphon.core.authority.control import Change, Control, outdated
from antiphon.core.authority.delegations import Grants
from antiphon.core.family import Lane, Needs, Reads
from antiphon.core.opened_record import OpenedRecord, open_anywhere
from antiphon.core.record.verdict import Verdict
from antiphon.core.reducer import Outcome, judge, settled
from antiphon.core.tempo.policy import DEFAULT_POLICY
from antiphon.core.tempo.tempo_history import DatedPolicy

if TYPE_CHECKING:
    from antiphon.core.protocol import Protocol
    from antiphon.core.tempo.policy import TempoPolicy


class ControlHistory:
    """All intervals of one mesh. Apply every record on its control subjects, in order."""

    def __init__(self, protocol: Protocol, mesh: str) -> None:
        """Start empty; the first accepted op must be genesis."""
        self.protocol = protocol
        self.mesh = mesh
        self._starts: list[int] = []
        self._states: list[Control] = []
        self._tails: dict[str, int] = {}
        self._op_ids: dict[int, str] = {}
        self._archives: list[Control] = []
        self.grants = Grants()
        self.applied = 0
        """The sequence of the newest control record that was applied."""

    @property
    def current(self) -> Control | None:
        """The newest interval; None before genesis. See `newest` for what is in force now."""
        return self._states[-1] if self._states else None

    def newest(self, now_ms: int) -> Control | None:
        """What is in force now: the newest interval, with what has come into force since."""
        newest = self._states[-1] if self._states else None
        return newest if newest is None or newest.rise is None else newest.at_time(now_ms)

    def at(self, seq: int, commit_ms: int) -> Control | None:
        """The state that judges a record: all control ops before it, itself excluded."""
        states = self._states
        if states and seq > self._starts[-1]:
            newest = states[-1]  # nearly always, and nearly always with nothing announced
            return newest if newest.rise is None else newest.at_time(commit_ms)
        index = bisect_right(self._starts, seq - 1)
        return states[index - 1].at_time(commit_ms) if index else None

    @property
    def coordinators(self) -> frozenset[str]:
        """Everybody who has coordinated this mesh."""
        return frozenset(state.coordinator for state in self._states)

    @property
    def tempo_before(self) -> TempoPolicy | None:
        """The tempo policy before the newest one; None if it was never replaced."""
        policies = [one.policy for one in self.tempo_policies]
        return next((one for one in reversed(policies) if one != policies[-1]), None)

    @property
    def tempo_policies(self) -> list[DatedPolicy]:
        """Every tempo policy that the mesh has had, oldest first; the first is the default."""
        found = [DatedPolicy(0, DEFAULT_POLICY)]
        for state in self._states:
            if state.tempo is not found[-1].policy:
                found.append(DatedPolicy(state.tempo_ms, state.tempo))
        return found

    def tail(self, subject: str) -> int:
        """The last sequence on a control subject, 0 if none: the `prev` of a new op there."""
        return self._tails.get(subject, 0)

    def apply(self, record: OpenedRecord) -> Verdict:
        """Judge one control record and keep its effect. Applying one twice is an error."""
        if record.seq <= self.applied:
            raise ValueError(f"control record {record.seq} was applied after {self.applied}")
        outcome = self.judge(record)
        if outcome.change is not None:
            self.take(record.seq, outcome.change)
        self._tails[record.subject] = record.seq
        self._op_ids[record.seq] = record.op_id
        self.applied = record.seq
        return outcome.verdict

    def judge(self, record: OpenedRecord) -> Outcome:
        """The outcome of a control record if it came next; nothing is kept."""
        control = self.newest(record.commit_ms)
        lane = Lane((self.tail(record.subject),))
        outcome = judge(control, lane, record)
        if isinstance(outcome, Needs):
            shown = (
                open_anywhere(self.protocol, self.mesh, text.encode()) for text in outcome.shown
            )
            outcome = judge(control, lane, record, Reads(shown=tuple(shown)))
        return settled(outcome)

    def settle(self, lane: Lane, record: OpenedRecord, read: Callable[[Needs], Reads]) -> Outcome:
        """The outcome of any other record at its own place; `read` fetches what that needs."""
        control = self.at(record.seq, record.commit_ms)
        outcome = judge(control, lane, record)
        if isinstance(outcome, Needs):
            outcome = judge(control, lane, record, read(outcome))
        return settled(outcome)

    def take(self, seq: int, change: Change) -> None:
        """Apply what an accepted op changes."""
        if change.granted is not None:
            self.grants.grant(seq, change.granted)
        if change.revoked is not None:
            self.grants.revoke(seq, *change.revoked)
        if change.write is not None:
            change.write.register.write(seq, change.write.key, change.write.value)
        if change.unknown_protocol:
            raise outdated(self.mesh, change.unknown_protocol, self.protocol.number)
        if change.control is not None:
            self._push(change.control)

    def _push(self, state: Control) -> None:
        if not self._states:
            known = self.protocol.number
            if state.rules.protocol > known:
                raise outdated(self.mesh, state.rules.protocol, known)
            state = replace(
                state,
                mesh=self.mesh,
                grants=self.grants,
                op_ids=self._op_ids,
                archives=self._archives,
                known_protocol=known,
            )
        if state.archive.seq == state.since:
            self._archives.append(state)
        self._starts.append(state.since)
        self._states.append(state)
