"""What holds for the whole mesh, and since when (SPEC §5, §7.4).

Control ops are few; jobs are many. So control state is kept as intervals: one immutable
`Control` from each accepted control op to the next, found by bisection. A verdict on any op
reads the interval at that op's own sequence, which lets a full node that is far ahead and a light
worker that just arrived judge the same record alike.

An interval is small whatever came before it. What grows (delegations, routes, quarantines, the ids
of control records) stands in append-only books that all intervals share and ask by sequence.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core import ops, subjects
from antiphon.core.deps import are_present
from antiphon.core.grants import Grants, open_token
from antiphon.core.reasons import Reason
from antiphon.core.records import Activation, Entry, open_anywhere
from antiphon.core.register import Register
from antiphon.core.rules import NOTICE_MS, PROTOCOL, Rules, contradiction
from antiphon.core.ucan import Delegation
from antiphon.errors import Outdated

MESH_META = "mesh"
"""A delegation whose metadata names a mesh is good on that mesh only: one key may own several."""


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

    def at_time(self, commit_ms: int) -> Control:
        """The state that judges a record with this commit stamp: a rise may have come into force.

        Values that cannot hold together do not take effect; the protocol does all the same.
        """
        rise = self.rise
        if rise is None or commit_ms < rise.from_ms:
            return self
        if rise.protocol > PROTOCOL:
            raise _outdated(self.mesh, rise)
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
                raise _outdated(self.mesh, Rise(activation.protocol, entry.commit_ms, None))
            rise = Rise(activation.protocol, entry.commit_ms + NOTICE_MS, None)
            self._push(replace(current, since=entry.seq, owner_hlc=activation.hlc, rise=rise))
            return Reason.OK
        fault = entry.fault_under(protocol_of(current))
        if fault is not None:
            return fault
        op = entry.op
        if isinstance(op, ops.MeshGenesis):
            return self._found(entry, op)
        if current is None or not isinstance(op, ops.CONTROL_TYPES):
            return Reason.GENESIS
        verdict = _judge(current, entry, op, before)
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
        fault = entry.fault_under(protocol_of(current))
        return fault or _judge(current, entry, op, self.tail(entry.subject))

    def _found(self, entry: Entry, op: ops.MeshGenesis) -> Reason:
        if self._states or op.mesh or op.prev or op.deps or op.auth:
            return Reason.GENESIS
        body = op.body
        if op.author != body.owner:
            return Reason.NOT_OWNER
        if body.rules.protocol > PROTOCOL:
            raise _outdated(self.mesh, Rise(body.rules.protocol, entry.commit_ms, None))
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


def _outdated(mesh: str, rise: Rise) -> Outdated:
    since = datetime.fromtimestamp(rise.from_ms // 1000, UTC)
    return Outdated(
        f"mesh {mesh} runs protocol {rise.protocol} since {since:%Y-%m-%d %H:%M} UTC; this version"
        f" reads {PROTOCOL} and stops there",
        hint="upgrade this node: pip install -U antiphon",
    )


def protocol_of(control: Control | None) -> int:
    """The protocol in force; 0 before genesis."""
    return control.rules.protocol if control is not None else 0


def time_fault(control: Control, entry: Entry, hlc: tuple[int, int]) -> Reason | None:
    """Whether an op's own time is bearable next to its commit time."""
    wall_ms = hlc[0]
    if wall_ms > entry.commit_ms + control.rules.max_drift_ms:
        return Reason.DRIFT
    if wall_ms < entry.commit_ms - control.rules.horizon_ms:
        return Reason.TOO_OLD
    return None


def _judge(control: Control, entry: Entry, op: ops.ControlOp, before: int) -> Reason:
    fault = time_fault(control, entry, op.hlc)
    if fault is not None:
        return fault
    if op.prev != before:
        return Reason.PREV
    fault = _authority_fault(control, entry, op)
    if fault is not None:
        return fault
    if op.deps and not are_present(control, entry):
        return Reason.MISSING_DEP
    match op:
        case ops.UcanDelegate(body=body):
            return _judge_delegation(control, entry, open_token(body.token))
        case ops.UcanRevoke():
            return Reason.OK
        case ops.MeshEvidence(body=body):
            return _judge_evidence(control, entry, body)
    if op.hlc <= control.owner_hlc:
        return Reason.EQUIVOCATION if op.hlc == control.owner_hlc else Reason.STALE
    return _judge_rules(control, op.body.rules) if isinstance(op, ops.MeshRules) else Reason.OK


def _authority_fault(control: Control, entry: Entry, op: ops.ControlOp) -> Reason | None:
    """Why the author may not author this op here, or None.

    Owner ops are the owner's. Delegations are brought by those whom they concern and revoked by
    those above them. Anybody may show evidence.
    """
    author, owner = op.author, control.owner
    if control.is_quarantined(author):
        return Reason.QUARANTINED
    match op:
        case ops.MeshEvidence():
            return None
        case ops.UcanDelegate(body=body):
            claims = open_token(body.token).payload
            return None if author in {claims.iss, claims.aud, owner} else Reason.NO_CHAIN
        case ops.UcanRevoke(body=body):
            grants, seq = control.grants, entry.seq
            may = grants.find(body.cid, before=seq) is not None and (
                author == owner or grants.is_above(author, body.cid, before=seq)
            )
            return None if may else Reason.NO_CHAIN
        case ops.MeshRecover():
            return None if author == control.recovery else Reason.NOT_OWNER
        case _:
            return None if author == owner else Reason.NOT_OWNER


def _judge_rules(control: Control, rules: Rules) -> Reason:
    if rules.protocol < control.rules.protocol:
        return Reason.PROTOCOL
    if rules.protocol > control.rules.protocol:
        return Reason.OK  # an announcement: the protocol that it names judges what comes with it
    return Reason.RULES if contradiction(rules) is not None else Reason.OK


def _judge_evidence(control: Control, entry: Entry, body: ops.EvidenceBody) -> Reason:
    """Two different ops, validly signed by one author with one timestamp, for this mesh.

    Against a key that holds nothing it says what already holds: nothing of it counts.
    """
    if control.is_quarantined(body.node) or not _holds_something(control, body.node, entry.seq):
        return Reason.ALREADY
    one, two = (open_anywhere(control.mesh, text.encode()) for text in (body.first, body.second))
    if one.op is None or two.op is None or one.op_id == two.op_id:
        return Reason.PROOF
    if any(shown.fault_under(control.rules.protocol) is not None for shown in (one, two)):
        return Reason.PROOF  # an op of a later protocol is none here
    is_by_one = one.op.author == two.op.author == body.node
    if not is_by_one or one.op.hlc != two.op.hlc or body.node == control.owner:
        return Reason.PROOF
    if one.op.mesh != control.mesh or two.op.mesh != control.mesh:
        return Reason.PROOF  # geneses of other meshes name none
    if one.op.hlc[0] > entry.commit_ms + control.rules.max_drift_ms:
        return Reason.PROOF  # or it would outdate whatever is shown after a readmission
    known = control.standing_of(body.node)
    is_old = known is not None and one.op.hlc <= known.shown_hlc
    return Reason.ALREADY if is_old else Reason.OK


def _holds_something(control: Control, did: str, seq: int) -> bool:
    """Whether a key's ops could count here: its quarantine would change something."""
    return (
        control.rules.authority == "open"
        or did in {control.owner, control.coordinator}
        or control.grants.is_held_by(did, root=control.owner, before=seq)
    )


def _judge_delegation(control: Control, entry: Entry, delegation: Delegation) -> Reason:
    if control.grants.find(delegation.cid, before=entry.seq) is not None:
        return Reason.ALREADY
    meta = delegation.payload.meta
    if isinstance(meta, dict) and meta.get(MESH_META, control.mesh) != control.mesh:
        return Reason.MESH
    return Reason.OK if control.grants.is_signed(delegation) else Reason.SIGNATURE


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
