"""A job's lane told in words: who did what, when, and what the rules said to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from antiphon.core import ops, terms
from antiphon.core.grants import open_token
from antiphon.core.ids import short_node
from antiphon.core.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antiphon.core.records import Entry


_SHORT_CID: Final = 8


class Line(Struct, frozen=True, kw_only=True):
    """One record of a story."""

    seq: int
    commit_ms: int
    op: str
    """The op's type; empty where the record is no op."""
    author: str
    verdict: Reason
    words: str


def tell(judged: Iterable[tuple[Entry, Reason]]) -> list[Line]:
    """The story of a lane, one line per record, oldest first.

    A control record among those of a lane is one that ended a tenure (`core.lapses`).
    """
    lines: list[Line] = []
    holder = ""
    for entry, verdict in judged:
        line, op = _line(entry, verdict), entry.op
        if verdict is Reason.OK and isinstance(op, ops.JobClaim):
            holder = op.author
        elif holder and isinstance(op, ops.CONTROL_TYPES):
            line = replace(line, words=f"{line.words}: the lease of {short_node(holder)} ended")
        lines.append(line)
    return lines


def _line(entry: Entry, verdict: Reason) -> Line:
    op = entry.op
    if op is None:
        words, kind, author = "someone wrote a record that is no op", "", ""
    else:
        kind, author = op.TYPE, op.author
        words = f"{short_node(op.author)} {_deed(op)}"
    if not verdict.is_accepted:
        words += f" — rejected: {verdict.in_words} ({verdict.value})"
    elif verdict is not Reason.OK:
        words += f" — {verdict.in_words} ({verdict.value})"
    return Line(
        seq=entry.seq,
        commit_ms=entry.commit_ms,
        op=kind,
        author=author,
        verdict=verdict,
        words=words,
    )


def _deed(op: ops.AnyOp) -> str:
    match op:
        case ops.JobSchedule(body=body):
            waiting = ", to wait for its offer" if body.waits else ""
            return f"called {body.kind} as class {body.urgency}{waiting}"
        case ops.JobOffer():
            return "called it again"
        case ops.JobClaim(body=body) if body.fence is not None:
            return f"renewed the lease for {_seconds(body.lease_ms)}"
        case ops.JobClaim(body=body):
            began = " and began" if body.begin else ""
            return f"claimed it for {_seconds(body.lease_ms)}{began}"
        case ops.JobStart():
            return "began to run it"
        case ops.JobComplete(body=body):
            why = f": {body.error.name}: {body.error.message}" if body.error else ""
            return f"completed it, {body.status}{why}"
        case ops.JobYield(body=body):
            why = f" ({body.error.name}: {body.error.message})" if body.error else ""
            return f"gave it back, reason {body.reason}{why}"
        case ops.JobExpire(body=body):
            what = "the lease" if body.fence is not None else "the wait"
            return f"declared {what} over"
        case ops.JobCancel(body=body):
            return f"cancelled it{': ' + body.reason if body.reason else ''}"
        case ops.JobEvict(body=body):
            return f"evicted the output {body.hash.removeprefix('blake3:')[:12]}: its bytes may go"
        case _:
            return _deed_about_the_mesh(op)


def _deed_about_the_mesh(op: ops.AnyOp) -> str:
    match op:
        case ops.MeshGenesis(body=body):
            return f"founded the mesh {body.name!r}"
        case ops.MeshRules():
            return "changed the rules"
        case ops.MeshRoute(body=body) if body.target is None:
            return f"lifted the route of {body.kind}"
        case ops.MeshRoute(body=body):
            return f"routed {body.kind} to {short_node(body.target or '')}"
        case ops.MeshCoordinator(body=body):
            return f"made {short_node(body.node)} the coordinator"
        case ops.MeshRecover(body=body):
            return f"made {short_node(body.owner)} the owner"
        case ops.MeshEvidence(body=body):
            return f"showed that {short_node(body.node)} signed two ops with one timestamp"
        case ops.MeshReadmit(body=body):
            return f"readmitted {short_node(body.node)}"
        case ops.MeshSeal(body=body):
            return f"sealed the log up to record {body.upto}"
        case ops.UcanDelegate(body=body):
            return _grant(body.token)
        case ops.UcanRevoke(body=body):
            return f"revoked the grant {body.cid[-_SHORT_CID:]}"
        case _:
            return f"wrote {op.TYPE}"


def _grant(token: str) -> str:
    delegation = open_token(token)
    claims = delegation.payload
    alias = terms.alias_of(delegation)
    whom = short_node(claims.aud) + (f" ({alias})" if alias else "")
    if claims.subject is None:
        return f"brought a grant that passes on to {whom} what {short_node(claims.iss)} holds"
    right = terms.rights_of(claims.cmd)
    return f"brought a grant to {whom}: {right} {terms.kinds_in_words(delegation)}"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s"
