"""All control states of a mesh, and which of them rules a record (spec §5).

Control ops are few; jobs are many. So control state is kept as intervals: one immutable
`Control` from each accepted control op to the next, found by bisection. A verdict on any op
reads the interval at that op's own sequence, which lets a full node that is far ahead and a light
worker that just arrived judge the same record alike.
"""

from __future__ import annotations

from bisect import bisect_right

from msgspec.structs import replace

from antiphon.core import ops
from antiphon.core.control import Control, Rise, Standing, outdated, time_fault
from antiphon.core.control_verdicts import judge
from antiphon.core.grants import Grants, open_token
from antiphon.core.reasons import Reason
from antiphon.core.records import Activation, Entry, open_anywhere
from antiphon.core.register import Register
from antiphon.core.rules import NOTICE_MS, PROTOCOL, contradiction


class ControlHistory:
    """All intervals of one mesh. Fed with every record on its control subjects, in order."""

    def __init__(self, mesh: str) -> None:
        """Begin with nothing; the first accepted op must be genesis."""
        self.mesh = mesh
        self._starts: list[int] = []
        self._states: list[Control] = []
        self._tails: dict[str, int] = {}
        self._op_ids: dict[int, str] = {}
        self.grants = Grants()
        self.applied = 0
        """The sequence of the newest control record that was fed in."""

    @property
    def current(self) -> Control | None:
        """The newest interval; None before genesis. See `newest` for what holds by now."""
        return self._states[-1] if self._states else None

    def newest(self, now_ms: int) -> Control | None:
        """What holds now: the newest interval, with what has come into force meanwhile."""
        return self._states[-1].at_time(now_ms) if self._states else None

    def at(self, seq: int, commit_ms: int) -> Control | None:
        """The state that rules a record: all control ops before it, itself excluded."""
        states = self._states
        if states and seq > self._starts[-1]:
            return states[-1].at_time(commit_ms)
        index = bisect_right(self._starts, seq - 1)
        return states[index - 1].at_time(commit_ms) if index else None

    def tail(self, subject: str) -> int:
        """The last sequence on a control subject, 0 if none: what a new op there names."""
        return self._tails.get(subject, 0)

    def apply(self, entry: Entry) -> Reason:
        """Judge one control record and remember its effect. Feeding one twice is an error."""
        if entry.seq <= self.applied:
            raise ValueError(f"control record {entry.seq} was fed after {self.applied}")
        before = self._tails.get(entry.subject, 0)
        verdict = self._judged(entry, before)
        self._tails[entry.subject] = entry.seq
        self._op_ids[entry.seq] = entry.op_id
        self.applied = entry.seq
        return verdict

    def _judged(self, entry: Entry, before: int) -> Reason:
        current = self.newest(entry.commit_ms)
        activation = entry.activation
        if activation is not None and _is_in_force(activation, current, entry, before):
            if current is None:
                raise outdated(self.mesh, activation.protocol)
            rise = Rise(activation.protocol, entry.commit_ms + NOTICE_MS, None)
            self._push(replace(current, since=entry.seq, owner_hlc=activation.hlc, rise=rise))
            return Reason.OK
        if entry.fault is not None:
            return entry.fault
        op = entry.op
        if isinstance(op, ops.MeshGenesis):
            return self._found(entry, op)
        if current is None or not isinstance(op, ops.CONTROL_TYPES):
            return Reason.GENESIS
        verdict = judge(current, entry, op, before)
        if verdict is Reason.OK:
            self._take(current, entry, op)
        return verdict

    def _take(self, current: Control, entry: Entry, op: ops.ControlOp) -> None:
        """Write down what an accepted op changes."""
        seq = entry.seq
        match op:
            case ops.UcanDelegate(body=body):
                self.grants.grant(seq, open_token(body.token))
                return
            case ops.UcanRevoke(body=body):
                self.grants.revoke(seq, body.cid, op.author)
                return
            case ops.MeshRoute(body=body):
                current.targets.say(seq, body.kind, body.target or "")
            case ops.MeshEvidence(body=body):
                shown = open_anywhere(current.mesh, body.first.encode()).op
                hlc = shown.hlc if shown is not None else op.hlc
                current.standings.say(seq, body.node, Standing(seq, hlc))
            case ops.MeshReadmit(body=body):
                standing = current.standing_of(body.node)
                if standing is not None:
                    again = replace(standing, is_readmitted=True)
                    current.standings.say(seq, body.node, again)
        self._push(_effect(current, entry, op))

    def foresee(self, entry: Entry) -> Reason:
        """The verdict that a control op would get if it came next."""
        current, op = self.newest(entry.commit_ms), entry.op
        if isinstance(op, ops.MeshGenesis) or not isinstance(op, ops.CONTROL_TYPES):
            return Reason.GENESIS
        if current is None:
            return Reason.GENESIS
        return judge(current, entry, op, self.tail(entry.subject))

    def _found(self, entry: Entry, op: ops.MeshGenesis) -> Reason:
        if self._states or op.mesh or op.prev or op.deps or op.auth:
            return Reason.GENESIS
        body = op.body
        if op.author != body.owner:
            return Reason.NOT_OWNER
        if body.rules.protocol > PROTOCOL:
            raise outdated(self.mesh, body.rules.protocol)
        if contradiction(body.rules) is not None:
            return Reason.RULES
        if op.hlc[0] > entry.commit_ms + body.rules.max_drift_ms:
            return Reason.DRIFT
        state = Control(
            mesh=self.mesh,
            since=entry.seq,
            owner=body.owner,
            recovery=body.recovery,
            coordinator=body.owner,
            rules=body.rules,
            owner_hlc=op.hlc,
            grants=self.grants,
            targets=Register(),
            standings=Register(),
            op_ids=self._op_ids,
        )
        self._push(state)
        return Reason.OK

    def _push(self, state: Control) -> None:
        self._starts.append(state.since)
        self._states.append(state)


def _is_in_force(
    activation: Activation, current: Control | None, entry: Entry, before: int
) -> bool:
    """Whether rules from the future would be accepted here by what no protocol changes."""
    if activation.type == ops.MeshGenesis.TYPE:
        return current is None and activation.author == activation.body.get("owner")
    return (
        current is not None
        and time_fault(current, entry, activation.hlc) is None
        and activation.author == current.owner
        and activation.prev == before
        and not activation.deps
        and activation.hlc > current.owner_hlc
    )


def _effect(control: Control, entry: Entry, op: ops.ControlOp) -> Control:
    """The interval that begins with an op; what books hold was written down before."""
    after = replace(control, since=entry.seq)
    if not isinstance(op, ops.MeshEvidence):
        after = replace(after, owner_hlc=op.hlc)
    match op:
        case ops.MeshRules(body=body) if body.rules.protocol > control.rules.protocol:
            rise = Rise(body.rules.protocol, entry.commit_ms + NOTICE_MS, body.rules)
            return replace(after, rise=rise)
        case ops.MeshRules(body=body):
            return replace(after, rules=body.rules, rise=None)
        case ops.MeshCoordinator(body=body):
            return replace(after, coordinator=body.node)
        case ops.MeshRecover(body=body):
            # Whoever had the old key may have named the coordinator, and announced a protocol.
            return replace(
                after, owner=body.owner, recovery=body.recovery, coordinator=body.owner, rise=None
            )
        case _:
            return after
