"""Who should claim a job first: draws, ranks and candidates (spec §8).

Nothing here decides who *has* a job: the claim's compare-and-set does. Selection avoids races,
spreads work, and leaves workers no choice of jobs. Under `rendezvous` each worker computes its own
rank:

    draw  = SHA-256(job id ‖ seed ‖ worker id)      ids as UTF-8, 32 bytes of seed; lowest first
    u     = 1 - draw / 2^256
    score = -ln(u) / weight                         lowest first; the same order at equal weights

The seed is the first half of the signature of the accepted schedule, so nobody can know a draw
before the job is submitted. Scores are decimals, correctly rounded at a fixed precision, so that
they have the same digits on every machine.

Labels are what a worker declares about itself (`gpu=a100`). A job's requirement is met by the same
label; a bare name (`gpu`) is met by any value.
"""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Context, Decimal
from enum import StrEnum
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from antiphon.core.authority import chain_check, parties
from antiphon.core.families.jobs import JOBS
from antiphon.core.families.jobs.ops import ClaimBody, JobClaim
from antiphon.core.families.jobs.state import job_key
from antiphon.core.family import At
from antiphon.core.record import signing
from antiphon.core.record.ids import digest
from antiphon.core.record.op import Label
from antiphon.core.record.verdict import Verdict
from antiphon.core.reducer import author_fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from antiphon.core.authority.chain_choice import ChainChoice
    from antiphon.core.authority.control import Control

SEED_BYTES: Final = 32
MAX_WEIGHT: Final = 1_000
MAX_LABELS: Final = 64
MAX_REQUIRED: Final = 32
JITTER: Final = 0.25
"""The most jitter, as a part of a claim window, for every rank but the first."""

Weight = Annotated[int, Meta(ge=1, le=MAX_WEIGHT)]
Labels = Annotated[tuple[Label, ...], Meta(max_length=MAX_LABELS)]
Method = Literal["queue", "rendezvous"]

_WHOLE: Final = 1 << 256
_EXACTLY: Final = Context(prec=40, rounding=ROUND_HALF_EVEN)
_NO_END: Final = 2**53
_ANY_JOB: Final = "0" * 64


class Unfit(StrEnum):
    """Why a worker is not a candidate for a job, apart from permissions."""

    SILENT = "silent"
    OTHER_KINDS = "other_kinds"
    LABELS = "labels"
    BUSY = "busy"

    @property
    def in_words(self) -> str:
        """The reason as the end of a sentence that begins with the worker."""
        return _WORDS[self]


_WORDS: Final = {
    Unfit.SILENT: "has not been heard from lately",
    Unfit.OTHER_KINDS: "does not run this kind",
    Unfit.LABELS: "lacks a label that the job requires",
    Unfit.BUSY: "has no free slot",
}


class Candidate(Struct, frozen=True, kw_only=True):
    """A worker as others know it."""

    did: str
    kinds: tuple[str, ...]
    labels: tuple[str, ...] = ()
    weight: int = 1
    free: int = 1
    """Free slots."""
    is_alive: bool = True
    """Whether it has been heard from lately."""


class Need(Struct, frozen=True, kw_only=True):
    """The facts about a job that decide who should claim it."""

    kind: str
    job_id: str
    seed: bytes
    requires: tuple[str, ...] = ()
    cooling: tuple[tuple[str, int], ...] = ()
    """Workers whose tenure expired, and until when they may not claim it."""


class CandidateDraw(Struct, frozen=True, kw_only=True):
    """A candidate's draw for one job."""

    candidate: Candidate
    draw: bytes


def method(control: Control, kind: str, requires: Sequence[str] = ()) -> Method:
    """The selection of a job: by the mesh's rules, or `rendezvous` if it requires labels."""
    if requires:
        return "rendezvous"
    return "rendezvous" if control.selection_for(kind) == "rendezvous" else "queue"


# --- draws ------------------------------------------------------------------------------------


def seed_of(payload: bytes) -> bytes:
    """The seed of the job in this schedule record; `Malformed` if it is not a record.

    A batch signature is shared by many ops: there the op's id is hashed in, otherwise all of
    them would go to the same worker.
    """
    op_bytes, block = signing.unframe(payload)
    head = block.sig[:SEED_BYTES]
    if block.of == 0:
        return head
    return sha256(head + digest(op_bytes).encode()).digest()


def draw(job_id: str, seed: bytes, worker: str) -> bytes:
    """A worker's draw for a job: 32 bytes, the lowest wins."""
    return sha256(job_id.encode() + seed + worker.encode()).digest()


def score(lot: bytes, weight: int) -> Decimal:
    """A weighted draw: twice the weight wins twice as often. The lowest wins here too."""
    left = _WHOLE - int.from_bytes(lot)
    u = _EXACTLY.divide(Decimal(left), Decimal(_WHOLE))
    # `-x` would round to the decimal precision of the caller's thread.
    return _EXACTLY.divide(_EXACTLY.minus(_EXACTLY.ln(u)), Decimal(weight))


def ranked(need: Need, candidates: Iterable[Candidate]) -> list[CandidateDraw]:
    """The candidates in the order in which they should claim.

    One hash for each; logarithms are taken only where weights differ.
    """
    lots = [
        CandidateDraw(candidate=one, draw=draw(need.job_id, need.seed, one.did))
        for one in candidates
    ]
    if len({one.candidate.weight for one in lots}) <= 1:
        return sorted(lots, key=lambda one: (one.draw, one.candidate.did))
    return sorted(
        lots, key=lambda one: (score(one.draw, one.candidate.weight), one.draw, one.candidate.did)
    )


def rank_of(need: Need, me: Candidate, others: Iterable[Candidate]) -> int:
    """How many of `others` should claim before me.

    One hash for each; logarithms are taken only where weights differ.
    """
    lot = draw(need.job_id, need.seed, me.did)
    own_score: Decimal | None = None
    before = 0
    for other in others:
        theirs = draw(need.job_id, need.seed, other.did)
        if other.weight == me.weight:
            before += (theirs, other.did) < (lot, me.did)
            continue
        own_score = own_score if own_score is not None else score(lot, me.weight)
        before += (score(theirs, other.weight), theirs) < (own_score, lot)
    return before


def places(
    need: Need, me: Candidate, others: Iterable[Candidate], *, now_ms: int
) -> tuple[int, int]:
    """How many should claim a job before me: of those with a free slot, and of all."""
    free, busy = [], []
    for other in others:
        why = unfitness(need, other, now_ms=now_ms)
        if why is None:
            free.append(other)
        elif why is Unfit.BUSY:
            busy.append(other)
    rank = rank_of(need, me, free)
    return rank, rank + rank_of(need, me, busy)


def wait_s(rank: int, *, window_ms: int, chance: float) -> float:
    """How long after the announcement a rank claims: 0 at once, each next a window later."""
    if rank == 0:
        return 0.0
    return (rank + JITTER * chance) * window_ms / 1000


def turn(job_id: str, fence: str, did: str, others: Iterable[str]) -> int:
    """This node's place among several that could write the same op: 0 = write it now."""

    def lot(node: str) -> tuple[bytes, str]:
        return sha256(f"{job_id}{fence}{node}".encode()).digest(), node

    own = lot(did)
    return sum(lot(other) < own for other in set(others) if other != did)


def is_earlier(claim: tuple[int, str], other: tuple[int, str]) -> bool:
    """Whether a claim in a message (time, worker) is before another: earlier, then lower id."""
    return claim < other


# --- candidates -------------------------------------------------------------------------------


def missing(requires: Iterable[str], labels: Iterable[str]) -> tuple[str, ...]:
    """The requirements that these labels do not meet."""
    have = set(labels)
    have |= {label.partition("=")[0] for label in have}
    return tuple(sorted(set(requires) - have))


def split_labels(text: str) -> tuple[str, ...]:
    """Labels from a text, separated by commas."""
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)


def check_labels(labels: Iterable[str], *, most: int = MAX_LABELS) -> tuple[str, ...]:
    """The labels, each once, in order; `ValueError` names one that is not valid."""
    distinct = tuple(sorted(set(labels)))
    for label in distinct:
        if not _is_label(label):
            raise ValueError(
                f"{label!r} is not a label: labels look like 'eu' or 'gpu=a100'"
                " (lower case, digits, '_', '.', '=', '/' and '-')"
            )
    if len(distinct) > most:
        raise ValueError(f"{len(distinct)} labels are too many; the limit is {most}")
    return distinct


def _is_label(text: str) -> bool:
    try:
        msgspec.convert(text, Label)
    except msgspec.ValidationError:
        return False
    return True


def unfitness(need: Need, candidate: Candidate, *, now_ms: int) -> Unfit | Verdict | None:
    """Why a worker is not a candidate for a job, apart from permissions; None if it is one."""
    if not candidate.is_alive:
        return Unfit.SILENT
    if need.kind not in candidate.kinds:
        return Unfit.OTHER_KINDS
    if need.requires and missing(need.requires, candidate.labels):
        return Unfit.LABELS
    if any(who == candidate.did and now_ms < until for who, until in need.cooling):
        return Verdict.COOLDOWN
    return Unfit.BUSY if candidate.free <= 0 else None


def claim_fault(
    control: Control, chain_choice: ChainChoice, *, did: str, kind: str, job_id: str, now_ms: int
) -> Verdict | None:
    """Why the log would reject this worker's claim of such a job: permissions and route.

    `chain_choice` is the worker's own, or one made to predict its choice.
    """
    op = _first_claim(control, chain_choice, did=did, kind=kind, job_id=job_id, now_ms=now_ms)
    at = At(_NO_END, now_ms, control, job_key(kind, job_id))
    fault = author_fault(JOBS, None, op, at)
    return Verdict.NOT_ROUTED if fault is None and _is_routed_elsewhere(control, op) else fault


def claiming_party(
    control: Control, chain_choice: ChainChoice, *, did: str, kind: str, now_ms: int
) -> str:
    """For which party a worker would claim such a job; empty if it may not."""
    job_id = _ANY_JOB
    fault = claim_fault(control, chain_choice, did=did, kind=kind, job_id=job_id, now_ms=now_ms)
    if fault is not None:
        return ""
    op = _first_claim(control, chain_choice, did=did, kind=kind, job_id=job_id, now_ms=now_ms)
    return parties.party_of(control, did, op.auth, before=_NO_END)


def is_for_others(
    control: Control, chain_choice: ChainChoice, *, did: str, kind: str, now_ms: int
) -> bool:
    """Whether this worker may claim no job of a kind, whatever it holds, while control stays so.

    A route sends the kind to another node, the kind is paused, or the worker is quarantined. It
    should not ask for such jobs: the engine would hand them to it as well as to the node that may
    claim them.
    """
    if control.is_quarantined(did) or control.pause_of(kind) is not None:
        return True
    if control.route_for(kind) is None:
        return False
    op = _first_claim(control, chain_choice, did=did, kind=kind, job_id=_ANY_JOB, now_ms=now_ms)
    return _is_routed_elsewhere(control, op)


def _is_routed_elsewhere(control: Control, claim: JobClaim) -> bool:
    route = control.route_for(claim.body.kind)
    return route is not None and not chain_check.stands_for(control, claim, _NO_END, route)


def _first_claim(
    control: Control, chain_choice: ChainChoice, *, did: str, kind: str, job_id: str, now_ms: int
) -> JobClaim:
    body = ClaimBody(kind=kind, job=job_id, lease_ms=control.rules.lease_ms, begin=True)
    return JobClaim(
        v=1,
        mesh=control.mesh,
        author=did,
        hlc=(now_ms, 0),
        prev=0,
        deps=(),
        auth=chain_choice.choose(control, JobClaim, body, now_ms),
        body=body,
    )
