"""What ops about the mesh do, and who may write them (spec §7.4).

The owner writes owner ops, the recovery key writes the recovery, the coordinator archives, the
owner and the coordinator write pauses, and anyone may write evidence. An owner op must be newer
than the last, so that log order and the owner's own order agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon.core.authority.control import (
    AnnouncedProtocol,
    Archive,
    Change,
    Control,
    Pause,
    Quarantine,
    RegisterWrite,
)
from antiphon.core.authority.delegations import Grants
from antiphon.core.authority.register import Register
from antiphon.core.authority.rules import NOTICE_MS, Rules, contradiction
from antiphon.core.families.mesh import ops
from antiphon.core.family import At, Moved, Needs
from antiphon.core.record.verdict import Verdict
from antiphon.core.tempo.policy import policy_fault
from antiphon.decoding import UNREADABLE

if TYPE_CHECKING:
    from antiphon.core.record.op import Op

MAX_PAUSES: Final = 16
"""At the same time: every claim is compared with them."""


# --- who may write, and in which order ----------------------------------------------------------


def entitled(control: Control, _state: None, op: Op, _at: At) -> Verdict | bool:
    """Whether the author may write this op."""
    match op:
        case ops.MeshEvidence():
            return True
        case ops.MeshRecover():
            return op.author == control.recovery or Verdict.NOT_OWNER
        case ops.MeshArchive():
            return op.author == control.coordinator or Verdict.NOT_COORDINATOR
        case ops.MeshPause():
            return op.author in (control.owner, control.coordinator) or Verdict.NOT_OWNER
        case _:
            return op.author == control.owner or Verdict.NOT_OWNER


def last(control: Control, _state: None, op: Op) -> tuple[tuple[int, int], str] | None:
    """The last owner op, or the last one about pauses; None for what others write."""
    match op:
        case ops.MeshEvidence() | ops.MeshArchive():
            return None
        case ops.MeshPause():
            return control.pause_hlc, op.author
        case _:
            return control.owner_hlc, op.author


# --- genesis ------------------------------------------------------------------------------------


def genesis(op: Op, seq: int, commit_ms: int) -> Moved | Verdict:
    """The control state that a genesis creates; any op before it is rejected."""
    if op.mesh or op.prev or op.deps or op.auth:
        return Verdict.GENESIS
    if isinstance(op, ops.NewerProtocol):
        is_own = op.author == op.body.get("owner")
        return (
            Moved(Verdict.OK, change=Change(unknown_protocol=op.protocol))
            if is_own
            else Verdict.NOT_OWNER
        )
    if not isinstance(op, ops.MeshGenesis):
        return Verdict.GENESIS
    body = op.body
    if op.author != body.owner:
        return Verdict.NOT_OWNER
    if contradiction(body.rules) is not None:
        return Verdict.RULES
    if op.hlc[0] > commit_ms + body.rules.max_drift_ms:
        return Verdict.DRIFT
    control = Control(
        mesh="",
        since=seq,
        owner=body.owner,
        recovery=body.recovery,
        coordinator=body.owner,
        rules=body.rules,
        owner_hlc=op.hlc,
        drift_most_ms=body.rules.max_drift_ms,
        archives=[],
        grants=Grants(),
        targets=Register(),
        quarantines=Register(),
        op_ids={},
    )
    return Moved(Verdict.OK, change=Change(control=control))


# --- every other op -----------------------------------------------------------------------------


def step(_state: None, op: Op, at: At) -> Moved | Verdict | Needs:
    """What an op changes in the control state."""
    control = at.control
    after = replace(control, since=at.seq, owner_hlc=op.hlc)
    match op:
        case ops.MeshRules(body=body):
            return _with_rules(after, body.rules, at)
        case ops.NewerProtocol():
            return _risen(after, op.protocol, None, at)
        case ops.MeshRoute(body=body):
            return _written(after, RegisterWrite(control.targets, body.kind, body.target or ""))
        case ops.MeshCoordinator(body=body):
            return _changed(replace(after, coordinator=body.node))
        case ops.MeshRecover(body=body):
            # Whoever had the old key may have named the coordinator and announced a protocol.
            return _changed(
                replace(
                    after,
                    owner=body.owner,
                    recovery=body.recovery,
                    coordinator=body.owner,
                    rise=None,
                )
            )
        case ops.MeshTempo(body=body):
            after = replace(after, tempo=body.policy, tempo_ms=at.commit_ms)
            return _changed(after) if policy_fault(body.policy) is None else Verdict.TEMPO
        case ops.MeshReadmit(body=body):
            return _readmitted(control, after, body.node)
        case ops.MeshEvidence(body=body):
            return _quarantined(control, body, at)
        case ops.MeshArchive():
            return _archived(control, op, at)
        case ops.MeshPause():
            return _paused(control, op, at)
        case _:
            return Verdict.GENESIS


def _changed(after: Control) -> Moved:
    return Moved(Verdict.OK, change=Change(control=after))


def _written(after: Control, write: RegisterWrite) -> Moved:
    return Moved(Verdict.OK, change=Change(control=after, write=write))


def _readmitted(before: Control, after: Control, node: str) -> Moved:
    quarantine = before.quarantine_of(node)
    if quarantine is None:
        return _changed(after)
    again = replace(quarantine, is_readmitted=True)
    return _written(after, RegisterWrite(after.quarantines, node, again))


def _with_rules(after: Control, rules: Rules, at: At) -> Moved | Verdict:
    before = at.control.rules.protocol
    if rules.protocol < before:
        return Verdict.PROTOCOL
    if rules.protocol > before:
        # The announced protocol judges the values that come with it.
        return _risen(after, rules.protocol, rules, at)
    if contradiction(rules) is not None:
        return Verdict.RULES
    drift_most_ms = max(after.drift_most_ms, rules.max_drift_ms)
    return _changed(replace(after, rules=rules, rise=None, drift_most_ms=drift_most_ms))


def _risen(after: Control, protocol: int, rules: Rules | None, at: At) -> Moved:
    announced_ms = rules.max_drift_ms if rules is not None else 0
    return _changed(
        replace(
            after,
            rise=AnnouncedProtocol(protocol, at.commit_ms + NOTICE_MS, rules),
            drift_most_ms=max(after.drift_most_ms, announced_ms),
        )
    )


def _archived(control: Control, op: ops.MeshArchive, at: At) -> Moved | Verdict:
    """Both times lie as far back as the rules say, by both clocks, and never go back."""
    body, rules, last = op.body, control.rules, control.archive
    now_ms = min(at.commit_ms, op.hlc[0])
    if body.before > now_ms - rules.retention_ms or body.memo_before > now_ms - rules.horizon_ms:
        return Verdict.EARLY
    if body.before < last.before_ms or body.memo_before < last.memo_before_ms:
        return Verdict.STALE
    archive = Archive(at.seq, body.before, body.memo_before, control.drift_most_ms)
    return _changed(replace(control, since=at.seq, archive=archive))


def _paused(control: Control, op: ops.MeshPause, at: At) -> Moved | Verdict:
    body = op.body
    about = (body.kind, body.label, body.plan)
    others = tuple(one for one in control.pauses if (one.kind, one.label, one.plan) != about)
    if (len(others) < len(control.pauses)) == body.is_paused:
        return Verdict.ALREADY
    if body.is_paused:
        if len(others) >= MAX_PAUSES:
            return Verdict.PAUSES
        pause = Pause(
            kind=body.kind,
            label=body.label,
            plan=body.plan,
            by=op.author,
            since_ms=at.commit_ms,
            reason=body.reason,
        )
        others = (*others, pause)
    return _changed(replace(control, since=at.seq, pauses=others, pause_hlc=op.hlc))


def _quarantined(control: Control, body: ops.EvidenceBody, at: At) -> Moved | Verdict | Needs:
    """Two different ops, validly signed by one author with one timestamp, for this mesh.

    Against a key without any permission it changes nothing: its ops are rejected anyway.
    """
    node = body.node
    if control.is_quarantined(node) or not _holds_something(control, node, at.seq):
        return Verdict.ALREADY
    if not at.reads.shown:
        return Needs(shown=(body.first, body.second))
    one, two = at.reads.shown
    if one.op is None or two.op is None or one.op_id == two.op_id:
        return Verdict.PROOF
    if max(one.since, two.since) > control.rules.protocol:
        return Verdict.PROOF  # an op of a later protocol is not an op here
    is_by_one = one.op.author == two.op.author == node
    if not is_by_one or one.op.hlc != two.op.hlc or node == control.owner:
        return Verdict.PROOF
    if one.op.mesh != control.mesh or two.op.mesh != control.mesh:
        return Verdict.PROOF  # a genesis of another mesh names no mesh
    if one.op.hlc[0] > at.commit_ms + control.rules.max_drift_ms:
        return Verdict.PROOF  # otherwise it would outdate evidence shown after a readmission
    known = control.quarantine_of(node)
    if known is not None and one.op.hlc <= known.shown_hlc:
        return Verdict.ALREADY
    shown = RegisterWrite(control.quarantines, node, Quarantine(at.seq, one.op.hlc))
    return _written(replace(control, since=at.seq), shown)


def _holds_something(control: Control, did: str, seq: int) -> bool:
    """Whether this key's ops could be accepted here, so that a quarantine changes something."""
    return (
        control.rules.authority == "open"
        or did in {control.owner, control.coordinator}
        or control.grants.is_held_by(did, root=control.owner, before=seq)
    )


# --- what this code cannot read -----------------------------------------------------------------


class _Envelope(Struct, frozen=True):
    """The fields that no protocol changes."""

    author: str
    mesh: str
    hlc: tuple[int, int]
    prev: int
    type: str
    body: dict[str, Any]
    deps: tuple[tuple[int, str], ...] = ()
    auth: tuple[str, ...] = ()


_decode: Final = msgspec.json.Decoder(_Envelope).decode


def newer_protocol(op_bytes: bytes, protocol: int) -> ops.NewerProtocol | None:
    """Rules or a genesis of a newer protocol than this, or None if the bytes are neither."""
    try:
        seen = _decode(op_bytes)
    except UNREADABLE:
        return None
    if (seen.type, bool(seen.mesh)) not in _ANNOUNCING:
        return None
    op = ops.NewerProtocol(
        v=1,
        mesh=seen.mesh,
        author=seen.author,
        hlc=seen.hlc,
        prev=seen.prev,
        deps=seen.deps,
        auth=seen.auth,
        body=seen.body,
    )
    return op if op.protocol > protocol else None


_ANNOUNCING: Final = {
    (ops.MeshGenesis.type_name(), False),
    (ops.MeshRules.type_name(), True),
}
