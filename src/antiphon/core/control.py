"""What holds for the whole mesh, and since when (SPEC §5, §7.4).

Control ops are few; jobs are many. So control state is kept as intervals: one immutable
`Control` from each accepted control op to the next, found by bisection. A verdict on any op
reads the interval at that op's own sequence, which lets a full node that is far ahead and a light
worker that just arrived judge the same record alike.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core import ops, subjects
from antiphon.core.deps import NO_DEPS, Dep, are_present
from antiphon.core.grants import Grants, open_token
from antiphon.core.reasons import Reason
from antiphon.core.records import Activation, Entry, open_anywhere
from antiphon.core.rules import PROTOCOL, Rules, contradiction
from antiphon.errors import Outdated

MESH_META = "mesh"
"""A delegation whose metadata names a mesh is good on that mesh only: one key may own several."""

OwnerOp = ops.MeshRules | ops.MeshRoute | ops.MeshCoordinator | ops.MeshReadmit
GrantOp = ops.UcanDelegate | ops.UcanRevoke


class Control(Struct, frozen=True, kw_only=True):
    """Control state from `since` on, until the next one."""

    mesh: str
    since: int
    owner: str
    recovery: str
    coordinator: str
    rules: Rules
    routes: dict[str, str]
    """Kind prefix to the only node that may claim below it. Never changed in place."""
    owner_hlc: tuple[int, int]
    """The newest accepted owner op: a later one must be newer still."""
    grants: Grants
    """Delegations and revocations: one book for all intervals, asked by sequence."""
    quarantined: dict[str, int]
    """Authors that were shown to equivocate, and where. Never changed in place."""
    fallen: dict[str, tuple[int, tuple[int, int]]] = {}
    """Where each author was last quarantined, readmitted since or not, and the timestamp that it
    had signed twice: what ended there stays ended, and old evidence says nothing new."""

    def route_for(self, kind: str) -> str | None:
        """The node that jobs of this kind are routed to, by the longest prefix, or None."""
        if not self.routes:
            return None
        prefix = kind
        while prefix:
            target = self.routes.get(prefix)
            if target is not None:
                return target
            prefix = prefix.rpartition(".")[0]
        return None

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
        self.grants = Grants()
        self.applied = 0
        """The sequence of the newest control record that was fed in."""

    @property
    def current(self) -> Control | None:
        """The newest interval; None before genesis."""
        return self._states[-1] if self._states else None

    def at(self, seq: int) -> Control | None:
        """The state that rules a record at `seq`: all control ops before it, itself excluded."""
        states = self._states
        if states and seq > self._starts[-1]:
            return states[-1]
        index = bisect_right(self._starts, seq - 1)
        return states[index - 1] if index else None

    def tail(self, subject: str) -> int:
        """The last sequence on a control subject, 0 if none: what a new op there names."""
        return self._tails.get(subject, 0)

    def apply(self, entry: Entry, deps: Mapping[int, Dep] = NO_DEPS) -> Reason:
        """Judge one control record and remember its effect. Feeding one twice changes nothing."""
        if entry.seq <= self.applied:
            raise ValueError(f"control record {entry.seq} was fed after {self.applied}")
        before = self._tails.get(entry.subject, 0)
        self._tails[entry.subject] = entry.seq
        self.applied = entry.seq
        current = self.current
        activation = entry.activation
        if activation is not None and _is_in_force(activation, current, before):
            raise _outdated(self.mesh, entry.seq, activation.protocol)
        fault = entry.fault_under(protocol_of(current))
        if fault is not None:
            return fault
        op = entry.op
        if isinstance(op, ops.MeshGenesis):
            return self._found(entry, op)
        if current is None or not isinstance(op, ops.CONTROL_TYPES):
            return Reason.GENESIS
        verdict = _judge(current, entry, op, before, deps)
        if verdict is not Reason.OK:
            return verdict
        if isinstance(op, ops.UcanDelegate):
            self.grants.grant(entry.seq, open_token(op.body.token))
        elif isinstance(op, ops.UcanRevoke):
            self.grants.revoke(entry.seq, op.body.cid, op.author)
        else:
            self._push(entry.seq, _effect(current, entry.seq, op))
        return verdict

    def foresee(self, entry: Entry) -> Reason:
        """The verdict that a control op without deps would get if it came next."""
        current, op = self.current, entry.op
        if isinstance(op, ops.MeshGenesis) or not isinstance(op, ops.CONTROL_TYPES):
            return Reason.GENESIS
        if current is None:
            return Reason.GENESIS
        fault = entry.fault_under(protocol_of(current))
        return fault or _judge(current, entry, op, self.tail(entry.subject), NO_DEPS)

    def _found(self, entry: Entry, op: ops.MeshGenesis) -> Reason:
        if self._states or op.mesh or op.prev or op.deps or op.auth:
            return Reason.GENESIS
        body = op.body
        if op.author != body.owner:
            return Reason.NOT_OWNER
        if body.rules.protocol > PROTOCOL:
            raise _outdated(self.mesh, entry.seq, body.rules.protocol)
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
            routes={},
            owner_hlc=op.hlc,
            grants=self.grants,
            quarantined={},
            fallen={},
        )
        self._push(entry.seq, state)
        return Reason.OK

    def _push(self, seq: int, state: Control) -> None:
        self._starts.append(seq)
        self._states.append(state)


def _is_in_force(activation: Activation, current: Control | None, before: int) -> bool:
    """Whether rules from the future would be accepted here by what no protocol changes."""
    if activation.type == ops.MeshGenesis.TYPE:
        return current is None and activation.author == activation.body.get("owner")
    return (
        current is not None
        and activation.author == current.owner
        and activation.prev == before
        and tuple(activation.hlc) > current.owner_hlc
    )


def _outdated(mesh: str, seq: int, protocol: int) -> Outdated:
    return Outdated(
        f"mesh {mesh} runs protocol {protocol} from record {seq} on; this version reads"
        f" {PROTOCOL} and stops there",
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


def _judge(
    control: Control,
    entry: Entry,
    op: OwnerOp | GrantOp | ops.MeshRecover | ops.MeshEvidence,
    before: int,
    deps: Mapping[int, Dep],
) -> Reason:
    fault = time_fault(control, entry, op.hlc)
    if fault is not None:
        return fault
    if op.prev != before:
        return Reason.PREV
    if op.deps and not are_present(control.rules.protocol, entry, deps):
        return Reason.MISSING_DEP
    if op.author in control.quarantined and op.author != control.owner:
        return Reason.QUARANTINED
    if isinstance(op, ops.UcanDelegate | ops.UcanRevoke):
        return _judge_grant(control, entry, op)
    if isinstance(op, ops.MeshEvidence):
        return _judge_evidence(control, op.body)
    signer = control.recovery if isinstance(op, ops.MeshRecover) else control.owner
    if op.author != signer:
        return Reason.NOT_OWNER
    if op.hlc <= control.owner_hlc:
        return Reason.EQUIVOCATION if op.hlc == control.owner_hlc else Reason.STALE
    return (
        _judge_rules(control, entry, op.body.rules) if isinstance(op, ops.MeshRules) else Reason.OK
    )


def _judge_rules(control: Control, entry: Entry, rules: Rules) -> Reason:
    if rules.protocol < control.rules.protocol:
        return Reason.PROTOCOL
    # Newer code may find sense where this finds a contradiction: stop before judging.
    if rules.protocol > PROTOCOL:
        raise _outdated(control.mesh, entry.seq, rules.protocol)
    return Reason.RULES if contradiction(rules) is not None else Reason.OK


def _judge_evidence(control: Control, body: ops.EvidenceBody) -> Reason:
    """Two different ops, validly signed by one author with one timestamp, for this mesh."""
    if body.node in control.quarantined:
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
    known = control.fallen.get(body.node)
    return Reason.ALREADY if known is not None and one.op.hlc <= known[1] else Reason.OK


def _judge_grant(control: Control, entry: Entry, op: ops.UcanDelegate | ops.UcanRevoke) -> Reason:
    """Delegations are brought by those whom they concern, revoked by those above them."""
    grants, seq = control.grants, entry.seq
    if isinstance(op, ops.UcanRevoke):
        if grants.find(op.body.cid, before=seq) is None:
            return Reason.NO_CHAIN
        may = op.author == control.owner or grants.is_above(op.author, op.body.cid, before=seq)
        return Reason.OK if may else Reason.NO_CHAIN
    delegation = open_token(op.body.token)
    if grants.find(delegation.cid, before=seq) is not None:
        return Reason.ALREADY
    claims = delegation.payload
    if op.author not in {claims.iss, claims.aud, control.owner}:
        return Reason.NO_CHAIN
    if isinstance(claims.meta, dict) and claims.meta.get(MESH_META, control.mesh) != control.mesh:
        return Reason.MESH
    return Reason.OK if grants.is_signed(delegation) else Reason.SIGNATURE


def _effect(
    control: Control, seq: int, op: OwnerOp | ops.MeshRecover | ops.MeshEvidence
) -> Control:
    match op:
        case ops.MeshRules():
            return replace(control, since=seq, owner_hlc=op.hlc, rules=op.body.rules)
        case ops.MeshCoordinator():
            return replace(control, since=seq, owner_hlc=op.hlc, coordinator=op.body.node)
        case ops.MeshRecover(body=body):
            was_owner = control.coordinator == control.owner
            return replace(
                control,
                since=seq,
                owner_hlc=op.hlc,
                owner=body.owner,
                recovery=body.recovery,
                coordinator=body.owner if was_owner else control.coordinator,
            )
        case ops.MeshEvidence(body=body):
            shown = open_anywhere(control.mesh, body.first.encode()).op
            fall = (seq, shown.hlc if shown is not None else op.hlc)
            return replace(
                control,
                since=seq,
                quarantined={**control.quarantined, body.node: seq},
                fallen={**control.fallen, body.node: fall},
            )
        case ops.MeshReadmit(body=body):
            left = {who: at for who, at in control.quarantined.items() if who != body.node}
            return replace(control, since=seq, owner_hlc=op.hlc, quarantined=left)
        case ops.MeshRoute():
            routes = {**control.routes}
            if op.body.target is None:
                routes.pop(op.body.kind, None)
            else:
                routes[op.body.kind] = op.body.target
            return replace(control, since=seq, owner_hlc=op.hlc, routes=routes)
